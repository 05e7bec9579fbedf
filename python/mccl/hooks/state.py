"""Base of all hooks: names, residuals, warm-up, statistics."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from mccl import config, torch_backend, torch_names

from .kept import Kept
from .statistics import Statistics
from .tensors import real_shape, wide

_log = logging.getLogger("mccl")

#: Numbers that make the descriptions of the hooks' groups distinct.
_numbers = itertools.count()

#: Reasons to send gradients exactly. They usually apply to the small gradients of a model.
UNCODED = (
    "compression would not reduce the bytes that the engine sends (the ranks share memory, the "
    "call is below compression_min_bytes, or the codec is as wide as the gradients)"
)
TOO_SMALL = "the two matrices that would replace the gradients are not smaller than the gradients"
_USUAL = (UNCODED, TOO_SMALL)


def group_like(
    group: dist.ProcessGroup, codec: str, ratio: float | None = None
) -> dist.ProcessGroup:
    """Makes a group of the same ranks whose sums use `codec`. All ranks of `group` must call it."""
    return dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=group._get_backend(torch.device("cpu")).options._timeout,
        backend=torch_names.OWN_BACKEND,
        pg_options=torch_backend.Options(compression=codec, topk_ratio=ratio),
        use_local_synchronization=True,
        group_desc=f"mccl hook {next(_numbers)}",
    )


class State:
    """Base of all hooks. A step is one backward pass that reduces gradients."""

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
                "warm_up and report_every: expected numbers of steps, at least 0; found "
                f"{warm_up} and {report_every}"
            )
        #: Group for exact sums, regardless of the settings.
        self.group: dist.ProcessGroup = group_like(group, "none")
        self.size = dist.get_world_size(self.group)
        self.warm_up = warm_up
        self.report_every = report_every
        self.statistics = Statistics()
        #: Steps that have ended.
        self.step = 0
        self._residuals = Kept("residual")
        #: All tensors that last across steps, by their key in state_dict().
        self._kept = {"residuals": self._residuals}
        self._parameters = dict(model.named_parameters())
        self._names = {parameter: name for name, parameter in self._parameters.items()}
        self._exact = {name for name, each in self._parameters.items() if exact(name, each)}
        #: Bytes of this step that were sent exactly, by reason.
        self._exact_bytes: dict[str, int] = {}
        self._said: set[str] = set()
        self._lock = threading.Lock()  # Callbacks of several buckets run concurrently.

    @property
    def residuals(self) -> dict[str, torch.Tensor]:
        """Returns, by parameter name, the part of the gradients that rounding has dropped so far.

        The residual of a complex parameter is a real tensor, as torch.view_as_real makes it.
        """
        return self._residuals.tensors

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of this rank. Each rank must save and load its own state."""
        return {"step": self.step} | {key: kept.copies() for key, kept in self._kept.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads the state of a job whose model has the same names, with any number of ranks.

        The tensors may be on any device, and are moved to the device that the hook uses.

        Raises:
            ValueError: A name or shape does not match the model.
        """
        for key, kept in self._kept.items():
            self._check(kept, state.get(key, {}))
        self.step = state["step"]
        for key, kept in self._kept.items():
            kept.tensors = {
                name: self._at_home(name, each) for name, each in state.get(key, {}).items()
            }

    def _home(self, name: str) -> torch.device:
        """Returns the device of this parameter's tensors: the host, where the codecs run."""
        return torch.device("cpu")

    def _at_home(self, name: str, saved: torch.Tensor) -> torch.Tensor:
        """Returns a copy with the device and type that this hook uses for the parameter."""
        dtype = wide(self._parameters[name].dtype)
        return saved.to(self._home(name), dtype, copy=True)

    def _shape(self, name: str) -> torch.Size | None:
        """Returns the shape of a parameter's residual; None for an unknown name."""
        parameter = self._parameters.get(name)
        return None if parameter is None else real_shape(parameter.shape, parameter.dtype)

    def _check(self, kept: Kept, saved: dict[str, torch.Tensor]) -> None:
        for name, each in saved.items():
            shape = self._shape(name)
            if shape is None or (kept.shaped_as_gradient and shape != each.shape):
                raise ValueError(
                    f"the saved state has a {kept.noun} of {name} with shape {tuple(each.shape)}, "
                    f"but the model has {'no such name' if shape is None else tuple(shape)}"
                )

    def _say_if_nothing_is_gained(self, backend: Any, codec: str) -> None:
        """Logs on rank 0 that the codec has no effect if all ranks share memory.

        `backend` belongs to a group with the codec.
        """
        count = config.get_config().compression_min_bytes // 4 + 4096
        large = torch.empty(count, dtype=torch.float32)  # Its memory is never accessed.
        if backend.bytes_to_sum(large, 1e-3 if codec == "topk" else None) < large.nbytes:
            return
        self._said.add(UNCODED)
        if dist.get_rank(self.group) == 0:
            _log.info(
                "mccl.hooks: %s is not applied: all ranks share memory, where compression saves "
                "nothing, so gradients are exact",
                codec,
            )

    def _note(self, given: int, sent: int, left: float = 0.0, wanted: float = 0.0) -> None:
        with self._lock:
            self.statistics.add(given, sent, left, wanted)

    def _note_reason(self, nbytes: int, why: str) -> None:
        """Records why bytes of this step are sent exactly although compression was requested."""
        with self._lock:
            self._exact_bytes[why] = self._exact_bytes.get(why, 0) + nbytes

    def _end_step(self, counts: bool) -> None:
        """Ends a step. `counts` is false if a reduced gradient was not finite."""
        for kept in self._kept.values():
            kept.end_step(counts)
        self.step += 1
        compressed = self.statistics.end_step(counts)
        due = self.report_every and self.step % self.report_every == 0
        if due and dist.get_rank(self.group) == 0:
            print(f"mccl.hooks: {self.statistics}", flush=True)
        self._say_exact(compressed)

    def _say_exact(self, compressed: bool) -> None:
        """Logs once per reason, on rank 0, how many bytes of gradients were not compressed."""
        for why, nbytes in self._exact_bytes.items():
            if why in self._said or dist.get_rank(self.group) != 0:
                continue
            self._said.add(why)
            # A step that compresses nothing is unusual, so it is a warning.
            level = logging.INFO if why in _USUAL and compressed else logging.WARNING
            _log.log(
                level,
                "mccl.hooks: %d bytes of a step's gradients were not compressed: %s",
                nbytes,
                why,
            )
        self._exact_bytes = {}
