"""Makes Accelerate, and so Transformers, use the backend "mccl" on the CPU.

On the CPU, Accelerate replaces the program's backend by gloo, and then refuses to start because the
two differ. It also replaces FSDP by DDP. With this change, Accelerate keeps the backend "mccl", and
uses FSDP on it if the program requests FSDP.
"""

from __future__ import annotations

import functools
import inspect
import os
from types import ModuleType
from typing import Any

from mccl.torch_names import BACKEND, OWN_BACKEND

_OURS = (BACKEND, OWN_BACKEND)


def change(state: ModuleType) -> None:
    """Makes accelerate.state keep the backend "mccl" on the CPU, and use FSDP if requested."""
    kinds = state.DistributedType
    prepare = state.PartialState._prepare_backend
    start = state.AcceleratorState.__init__
    of_prepare, of_start = inspect.signature(prepare), inspect.signature(start)
    # Raises KeyError for an unsupported version.
    of_prepare.parameters["backend"], of_start.parameters["fsdp_plugin"]

    @functools.wraps(prepare)
    def prepare_backend(*arguments: Any, **options: Any) -> tuple[str | None, Any]:
        backend = of_prepare.bind_partial(*arguments, **options).arguments.get("backend")
        chosen, kind = prepare(*arguments, **options)
        return (backend if backend in _OURS and kind == kinds.MULTI_CPU else chosen), kind

    @functools.wraps(start)
    def start_state(self: Any, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        plugin = of_start.bind_partial(self, *arguments, **options).arguments.get("fsdp_plugin")
        asked = plugin and os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
        if asked and self.distributed_type == kinds.MULTI_CPU and self.backend in _OURS:
            self.distributed_type = kinds.FSDP
            if self._mixed_precision != "no":
                plugin.set_mixed_precision(self._mixed_precision)
            self.fsdp_plugin = plugin
            # Accelerate copies this attribute to AcceleratorStates that the process makes later.
            state.PartialState._shared_state["distributed_type"] = kinds.FSDP

    state.PartialState._prepare_backend = prepare_backend
    state.AcceleratorState.__init__ = start_state
