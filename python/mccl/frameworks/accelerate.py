"""Accelerate, and Transformers above it, on the CPU.

Accelerate replaces the backend that a program names by gloo if the ranks are on the CPU, and then
refuses to start because the two differ. With MCCL's names it now keeps the backend. It also trains
by DDP there where a program asks for FSDP; on MCCL it now does what the program asks for.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

from mccl.torch_names import BACKEND, OWN_BACKEND

_OURS = (BACKEND, OWN_BACKEND)


def change(state: ModuleType) -> None:
    """Makes accelerate.state keep the backend "mccl" on the CPU, with FSDP if that is asked for."""
    kinds = state.DistributedType
    prepare = state.PartialState._prepare_backend
    start = state.AcceleratorState.__init__

    @functools.wraps(prepare)
    def prepare_backend(
        self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
    ) -> tuple[str | None, Any]:
        chosen, kind = prepare(self, cpu, sagemaker_dp, backend)
        return (backend if backend in _OURS and kind == kinds.MULTI_CPU else chosen), kind

    @functools.wraps(start)
    def start_state(self: Any, *arguments: Any, fsdp_plugin: Any = None, **options: Any) -> None:
        start(self, *arguments, fsdp_plugin=fsdp_plugin, **options)
        asked = fsdp_plugin and os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
        if asked and self.distributed_type == kinds.MULTI_CPU and self.backend in _OURS:
            self.distributed_type = kinds.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.fsdp_plugin = fsdp_plugin
            # Later states of the process are filled from this one.
            state.PartialState._shared_state["distributed_type"] = kinds.FSDP

    state.PartialState._prepare_backend = prepare_backend
    state.AcceleratorState.__init__ = start_state
