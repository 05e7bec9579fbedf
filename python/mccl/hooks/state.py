"""What every kind of hook has: names, feedback, warm-up, statistics."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from mccl import torch_backend
from mccl.config import get_config
from mccl.ramp import check_ramp, ratio_at

#: For names of the groups that hooks make.
_numbers = itertools.count()


def finite(tensor: torch.Tensor) -> torch.Tensor:
    """In place: nothing of a step that overflowed is kept, or all later ones would be NaN too."""
    return tensor.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def energy(tensor: torch.Tensor) -> float:
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


class Share:
    """How much of a gradient topk sends, step by step; of the other codecs nothing is to be said.

    Args:
        ratio: As it is in the end; None: the setting topk_ratio.
        ramp: The steps in which it comes down to that.
    """

    def __init__(self, codec: str, ratio: float | None, ramp: int) -> None:
        if ratio is not None and not 0 < ratio <= 1:
            raise ValueError(
                f"ratio is a share of the elements, above 0 and at most 1; found {ratio}"
            )
        check_ramp(ramp, codec)
        self.ratio = ratio
        self.ramp = ramp
        self._last = get_config().topk_ratio if ratio is None else ratio

    def at(self, step: int) -> float | None:
        """Of the step-th step that rounds; None where it is the group's own."""
        if step >= self.ramp:
            return None
        return ratio_at(step, self._last, self.ramp)


def group_like(
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


class State:
    """What every kind of hook has: names, feedback, warm-up, statistics."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        model: torch.nn.Module,
        warm_up: int,
        exact: Callable[[str, torch.nn.Parameter], bool],
        report_every: int,
    ) -> None:
        if warm_up < 0 or report_every < 0:
            raise ValueError(
                f"warm_up and report_every count steps; found {warm_up} and {report_every}"
            )
        #: For what is exact, whatever the settings say of other sums.
        self.group: dist.ProcessGroup = group_like(group, "none")
        self.size = dist.get_world_size(self.group)
        self.warm_up = warm_up
        self.report_every = report_every
        self.statistics = Statistics()
        self.step = 0
        #: By name: what has been left out of the parameter's gradients so far.
        self.residuals: dict[str, torch.Tensor] = {}
        self._names = {parameter: name for name, parameter in model.named_parameters()}
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
        self._check_shapes("residual", state["residuals"])
        self.step = state["step"]
        self.residuals = {name: each.clone() for name, each in state["residuals"].items()}

    def _check_shapes(self, kind: str, saved: dict[str, torch.Tensor]) -> None:
        shapes = {name: parameter.shape for parameter, name in self._names.items()}
        for name, each in saved.items():
            if shapes.get(name) != each.shape:
                raise ValueError(
                    f"what was saved has a {kind} of {name} with shape {tuple(each.shape)}, "
                    f"but the model has {tuple(shapes[name]) if name in shapes else 'no such name'}"
                )

    def _note(self, given: int, sent: int, left: float, wanted: float) -> None:
        statistics = self.statistics
        statistics.given += given
        statistics.sent += sent
        statistics._left += left
        statistics._wanted += wanted

    def _end_step(self) -> None:
        statistics = self.statistics
        statistics.steps += 1
        if statistics._wanted > 0:
            statistics.error = (statistics._left / statistics._wanted) ** 0.5
        statistics._left = statistics._wanted = 0.0
        due = self.report_every and self.step % self.report_every == 0
        if due and dist.get_rank(self.group) == 0:
            print(f"mccl.hooks: {statistics}", flush=True)
