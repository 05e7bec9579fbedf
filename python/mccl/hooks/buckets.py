"""Gradients of DistributedDataParallel, which come in buckets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .momentum import Momentum
from .state import Share, State, energy, finite, group_like


class BucketState(State):
    """Of DDP, whose gradients come in buckets."""

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The hook."""
        if self.step < self.warm_up:
            future = self._average(bucket.buffer(), self.group)
        else:
            future = self._reduce(bucket)
        if not bucket.is_last():
            return future
        self.step += 1

        def end(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            self._end_step()
            return done.value()

        return future.then(end)

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


class Rounded(BucketState):
    """By a codec of the engine."""

    def __init__(
        self,
        model: DistributedDataParallel,
        codec: str,
        share: Share,
        momentum: float,
        **rest: Any,
    ) -> None:
        self._momentum = Momentum(momentum)
        super().__init__(model.process_group, model.module, **rest)
        self.rounding = group_like(self.group, codec, share.ratio)
        self._backend = self.rounding._get_backend(torch.device("cpu"))
        self._share = share
        self._drops_elements = codec == "topk"

    def state_dict(self) -> dict[str, Any]:
        """The momenta too, where there are any."""
        velocities = {name: each.clone() for name, each in self._momentum.velocities.items()}
        return super().state_dict() | ({"velocities": velocities} if velocities else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See State."""
        super().load_state_dict(state)
        velocities = state.get("velocities", {})
        self._check_shapes("momentum", velocities)
        self._momentum.velocities = {name: each.clone() for name, each in velocities.items()}

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The hook."""
        if self._momentum.factor:
            for name, part in self._parts(bucket):
                self._momentum.accelerate(name, part)
        return super().reduce(bucket)

    def _reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        flat = bucket.buffer()
        exact = [part for name, part in self._parts(bucket) if name in self._exact]
        apart = torch.cat([part.flatten() for part in exact]) if exact else None
        for part in exact:
            part.zero_()
        left = torch.empty_like(flat)
        unused: list[tuple[str, torch.Tensor]] = []
        rounded: list[tuple[str, torch.Tensor]] = []
        for name, part in self._parts(bucket):
            if name in self._exact:
                continue
            # A view: the bucket's places, not its order in the next step.
            begin = part.storage_offset() - flat.storage_offset()
            kept = left[begin : begin + part.numel()].view(part.shape)
            # What a step did not use is let be: where no rank used it, DDP drops the result, and
            # with it what would have been sent.
            if name in self.residuals and not part.any():
                unused.append((name, kept))
                continue
            if name in self.residuals:
                part.add_(self.residuals[name])
            self.residuals[name] = kept
            rounded.append((name, kept))
        ratio = self._share.at(self.step - self.warm_up)
        coded = self._backend.bytes_to_sum(flat, ratio)
        sent = coded + (0 if apart is None else apart.nbytes)
        drops_elements = self._drops_elements and coded < flat.nbytes
        wanted = energy(flat)
        # What rounding leaves out is kept in host memory; on a CPU these are the tensors.
        summed, kept_out = flat.cpu(), left.cpu()
        work = self._backend.all_reduce_keeping(summed, kept_out, dist.ReduceOp.AVG, ratio)
        exact_work = (
            None
            if apart is None
            else dist.all_reduce(apart, dist.ReduceOp.AVG, group=self.group, async_op=True)
        )

        def end(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            done.value()
            if summed is not flat:
                flat.copy_(summed)
                left.copy_(kept_out)
            for name, kept in unused:  # of which this rank may have rounded the others' sum
                self.residuals[name] = self.residuals[name] + kept
            if drops_elements:
                for name, kept in rounded:
                    self._momentum.stop_sent(name, kept)
            self._note(flat.nbytes, sent, energy(left), wanted)
            if exact_work is not None:
                exact_work.wait()
            at = 0
            for part in exact:
                part.copy_(apart[at : at + part.numel()].view(part.shape))
                at += part.numel()
            return flat

        return work.get_future().then(end)


class PowerSgd(BucketState):
    """Each matrix as a product of two thin ones: Vogels et al., PowerSGD, 2019.

    One step of the power method, begun where the last step ended. What is no matrix, or smaller
    than the two, is exact.
    """

    def __init__(self, model: DistributedDataParallel, rank: int, **rest: Any) -> None:
        super().__init__(model.process_group, model.module, **rest)
        if rank < 1:
            raise ValueError(f"powersgd approximates by a rank of at least 1; found {rank}")
        self.rank = rank
        self._right: dict[str, torch.Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        """The matrices that the next step begins with too."""
        return super().state_dict() | {"right": dict(self._right)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See State."""
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
        lefts = []
        for name, _, matrix in matrices:
            right = self._right.get(name)
            if right is None or right.shape != (matrix.shape[1], self.rank):
                right = self._first_right(name, matrix.shape[1], matrix)
            lefts.append(matrix @ right)
        self._mean_of([*exact, *lefts])
        rights = []
        for (_, _, matrix), left in zip(matrices, lefts, strict=True):
            left.copy_(torch.linalg.qr(left.float()).Q)  # which takes no 16-bit floats
            rights.append(matrix.t() @ left)
        self._mean_of(rights)
        lost = wanted = 0.0
        for (name, part, matrix), left, right in zip(matrices, lefts, rights, strict=True):
            if right.any():
                self._right[name] = finite(right.clone())
            product = left @ right.t()
            residual = finite(matrix - product)
            lost += energy(residual)
            wanted += energy(matrix)
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
