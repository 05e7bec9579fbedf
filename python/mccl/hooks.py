"""Gradients of DDP in fewer bytes, with what was lost added to the next step's.

    model = DistributedDataParallel(net)
    state = mccl.hooks.compress(model, "int8")

Every rank keeps, parameter by parameter, what rounding its gradients has left out so far, and adds
it before it rounds the next ones (error feedback: Seide et al., 1-Bit Stochastic Gradient Descent,
2014; Karimireddy et al., Error Feedback Fixes SignSGD, 2019). So codecs that drop nearly all,
such as topk, train nearly as well as exact sums do. What rounding the sum leaves out, once for all
ranks, is not kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import torch_backend

#: For names of the groups that hooks make.
_numbers = itertools.count()


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    """In place: nothing of a step that overflowed is kept, or all later ones would be NaN too."""
    return tensor.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def _energy(tensor: torch.Tensor) -> float:
    """The sum of squares, which a 16-bit float may not hold."""
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float32)) ** 2


@dataclass
class Statistics:
    """What a hook has done since it was made, or since reset()."""

    #: Steps, exact ones included.
    steps: int = 0
    #: Bytes of gradients, and what the codec made of them.
    given: int = 0
    sent: int = 0
    #: Of the last step: the norm of what was left out over that of what was to be sent.
    error: float = 0.0
    _left: float = field(default=0.0, repr=False)
    _wanted: float = field(default=0.0, repr=False)

    @property
    def ratio(self) -> float:
        """How many times fewer bytes were sent than given."""
        return self.given / self.sent if self.sent else 1.0

    def reset(self) -> None:
        """Counts from nothing again."""
        self.steps = self.given = self.sent = 0
        self.error = 0.0

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.given / 1e6:.1f} MB in {self.sent / 1e6:.1f} MB "
            f"({self.ratio:.1f} times fewer), last error {self.error:.3g}"
        )


def _group_like(
    group: dist.ProcessGroup, codec: str, ratio: float | None = None
) -> dist.ProcessGroup:
    """Of the same ranks, with sums in a codec of its own. Ranks outside need not know of it."""
    return dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=group._get_backend(torch.device("cpu")).options._timeout,
        backend="mccl",
        pg_options=torch_backend.Options(compression=codec, topk_ratio=ratio),
        use_local_synchronization=True,
        group_desc=f"mccl hook {next(_numbers)}",
    )


class _State:
    """What every kind of hook has: names, feedback, warm-up, statistics."""

    def __init__(
        self,
        model: DistributedDataParallel,
        warm_up: int,
        exact: Callable[[str, torch.nn.Parameter], bool],
        report_every: int,
    ) -> None:
        if warm_up < 0 or report_every < 0:
            raise ValueError(
                f"warm_up and report_every count steps; found {warm_up} and {report_every}"
            )
        #: For what is exact, whatever the settings say of other sums.
        self.group: dist.ProcessGroup = _group_like(model.process_group, "none")
        self.size = dist.get_world_size(self.group)
        self.warm_up = warm_up
        self.report_every = report_every
        self.statistics = Statistics()
        self.step = 0
        #: By name: what has been left out of the parameter's gradients so far.
        self.residuals: dict[str, torch.Tensor] = {}
        self._names = {parameter: name for name, parameter in model.module.named_parameters()}
        self._exact = {name for parameter, name in self._names.items() if exact(name, parameter)}

    def state_dict(self) -> dict[str, Any]:
        """Of this rank: every rank saves and loads its own."""
        residuals = {name: each.clone() for name, each in self.residuals.items()}
        return {"step": self.step, "residuals": residuals}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Of any job with a model of the same names, of as many ranks or not.

        Raises:
            ValueError: A name or shape is not the model's.
        """
        shapes = {name: parameter.shape for parameter, name in self._names.items()}
        for name, residual in state["residuals"].items():
            if shapes.get(name) != residual.shape:
                raise ValueError(
                    f"what was saved has a residual of {name} with shape {tuple(residual.shape)}, "
                    f"but the model has {tuple(shapes[name]) if name in shapes else 'no such name'}"
                )
        self.step = state["step"]
        self.residuals = {name: each.clone() for name, each in state["residuals"].items()}

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The hook."""
        if self.step < self.warm_up:
            future = self._average(bucket.buffer(), self.group)
        else:
            future = self._reduce(bucket)
        if bucket.is_last():
            self._end_step()
        return future

    def _reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        raise NotImplementedError

    def _average(
        self, tensor: torch.Tensor, group: dist.ProcessGroup
    ) -> torch.futures.Future[torch.Tensor]:
        work = dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def _parts(self, bucket: dist.GradBucket) -> Iterable[tuple[str, torch.Tensor]]:
        """Names and gradients, which lie in the bucket's buffer."""
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            yield self._names[parameter], gradient

    def _note(self, given: int, sent: int, left: float, wanted: float) -> None:
        statistics = self.statistics
        statistics.given += given
        statistics.sent += sent
        statistics._left += left
        statistics._wanted += wanted

    def _end_step(self) -> None:
        self.step += 1
        statistics = self.statistics
        statistics.steps += 1
        if statistics._wanted > 0:
            statistics.error = (statistics._left / statistics._wanted) ** 0.5
        statistics._left = statistics._wanted = 0.0
        due = self.report_every and self.step % self.report_every == 0
        if due and dist.get_rank(self.group) == 0:
            print(f"mccl.hooks: {statistics}", flush=True)


class _Rounded(_State):
    """By a codec of the engine."""

    def __init__(
        self, model: DistributedDataParallel, codec: str, ratio: float | None, **rest: Any
    ) -> None:
        super().__init__(model, **rest)
        self.rounding = _group_like(self.group, codec, ratio)
        self._backend = self.rounding._get_backend(torch.device("cpu"))

    def _reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        flat = bucket.buffer()
        exact = [part for name, part in self._parts(bucket) if name in self._exact]
        apart = torch.cat([part.flatten() for part in exact]) if exact else None
        for part in exact:
            part.zero_()
        # What a step did not use is let be: where no rank used it, DDP drops the result, and with
        # it what would have been sent.
        rounded = [
            (name, part)
            for name, part in self._parts(bucket)
            if name not in self._exact and (part.any() or name not in self.residuals)
        ]
        for name, part in rounded:
            if name in self.residuals:
                part.add_(self.residuals[name])
        taken, sent = self._backend.round(flat)
        left = _finite(flat - taken)
        # A view of each: the bucket's places, not its order in the next step.
        for name, part in rounded:
            begin = part.storage_offset() - flat.storage_offset()
            self.residuals[name] = left[begin : begin + part.numel()].view(part.shape)
        self._note(
            flat.nbytes,
            sent + (0 if apart is None else apart.nbytes),
            _energy(left),
            _energy(flat),
        )
        future = self._average(flat, self.rounding)
        if apart is None:
            return future
        exact_work = dist.all_reduce(apart, dist.ReduceOp.AVG, group=self.group, async_op=True)

        def put_back(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            exact_work.wait()
            at = 0
            for part in exact:
                part.copy_(apart[at : at + part.numel()].view(part.shape))
                at += part.numel()
            return done.value()

        return future.then(put_back)


class _PowerSgd(_State):
    """Each matrix as a product of two thin ones: Vogels et al., PowerSGD, 2019.

    One step of the power method, begun where the last step ended. What is no matrix, or smaller
    than the two, is exact.
    """

    def __init__(self, model: DistributedDataParallel, rank: int, **rest: Any) -> None:
        super().__init__(model, **rest)
        if rank < 1:
            raise ValueError(f"powersgd approximates by a rank of at least 1; found {rank}")
        self.rank = rank
        self._right: dict[str, torch.Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"right": dict(self._right)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._right = {name: each.clone() for name, each in state.get("right", {}).items()}

    def _is_thin(self, name: str, part: torch.Tensor) -> bool:
        if name in self._exact or part.dim() < 2 or part.numel() == 0:
            return False
        rows = part.shape[0]
        columns = part.numel() // rows
        return (rows + columns) * self.rank < part.numel()

    def _first_right(self, name: str, columns: int, like: torch.Tensor) -> torch.Tensor:
        """The same on all ranks."""
        generator = torch.Generator().manual_seed(sum(name.encode()) * 2654435761 % 2**31)
        return torch.randn(columns, self.rank, generator=generator).to(like)

    def _reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        matrices: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        exact: list[torch.Tensor] = []
        kept: dict[str, torch.Tensor] = {}  # residuals of what this step did not use
        for name, part in self._parts(bucket):
            if not self._is_thin(name, part):
                exact.append(part)
                continue
            if name in self.residuals:
                if part.any():
                    part.add_(self.residuals[name])
                else:
                    kept[name] = self.residuals[name]
            matrices.append((name, part, part.view(part.shape[0], -1)))
        self._mean_of(exact)
        lefts = []
        for name, _, matrix in matrices:
            right = self._right.get(name)
            if right is None or right.shape != (matrix.shape[1], self.rank):
                right = self._first_right(name, matrix.shape[1], matrix)
            lefts.append(matrix @ right)
        self._mean_of(lefts)
        rights = []
        for (_, _, matrix), left in zip(matrices, lefts, strict=True):
            left.copy_(torch.linalg.qr(left.float()).Q)  # which takes no 16-bit floats
            rights.append(matrix.t() @ left)
        self._mean_of(rights)
        lost = wanted = 0.0
        for (name, part, matrix), left, right in zip(matrices, lefts, rights, strict=True):
            if right.any():
                self._right[name] = _finite(right.clone())
            product = left @ right.t()
            residual = _finite(matrix - product)
            lost += _energy(residual)
            wanted += _energy(matrix)
            self.residuals[name] = residual.view(part.shape).clone()
            if name in kept:
                self.residuals[name] += kept[name]
            matrix.copy_(product)
        sent = sum(each.nbytes for each in [*exact, *lefts, *rights])
        self._note(bucket.buffer().nbytes, sent, lost, wanted)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def _mean_of(self, tensors: list[torch.Tensor]) -> None:
        """Each becomes its mean over the ranks, by one call."""
        if not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat, dist.ReduceOp.AVG, group=self.group)
        at = 0
        for tensor in tensors:
            tensor.copy_(flat[at : at + tensor.numel()].view(tensor.shape))
            at += tensor.numel()


def biases_and_norms(name: str, parameter: torch.nn.Parameter) -> bool:
    """Parameters of one dimension: few, and hurt most by rounding."""
    return parameter.dim() < 2


def compress(
    model: DistributedDataParallel,
    codec: str,
    *,
    ratio: float | None = None,
    rank: int = 2,
    warm_up: int = 0,
    exact: Callable[[str, torch.nn.Parameter], bool] = biases_and_norms,
    report_every: int = 0,
) -> _State:
    """Makes a model of DistributedDataParallel send its gradients in fewer bytes.

    A collective: all ranks of the model's process group call it, with the same arguments, before
    the first step.

    Args:
        model: Not yet with a hook. Its process group has the backend "mccl" for host memory.
        codec: fp16, bf16, int8, fp8, fp8_e5m2, int4, topk or powersgd.
        ratio: topk: the share of the elements that each rank sends; by default the setting
            topk_ratio.
        rank: powersgd: the columns of each of the two matrices that stand for one.
        warm_up: So many steps are exact, while gradients still change much.
        exact: Whether a parameter, by its name, is never rounded; by default those of one
            dimension.
        report_every: Rank 0 prints a line of statistics every so many steps; 0: never.

    Returns:
        The state: its ``statistics``; ``state_dict()`` and ``load_state_dict()``, by names of
        parameters, for checkpoints.

    Raises:
        ValueError: An unknown codec (with the nearest name), a ratio, rank or count out of range.
    """
    rest: dict[str, Any] = {"warm_up": warm_up, "exact": exact, "report_every": report_every}
    if ratio is not None and not 0 < ratio <= 1:
        raise ValueError(f"ratio is a share of the elements, above 0 and at most 1; found {ratio}")
    state = (
        _PowerSgd(model, rank, **rest)
        if codec == "powersgd"
        else _Rounded(model, codec, ratio, **rest)
    )
    model.register_comm_hook(state, lambda state, bucket: state.reduce(bucket))
    return state
