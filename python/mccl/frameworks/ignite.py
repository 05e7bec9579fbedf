"""Makes Ignite accept this backend."""

from __future__ import annotations

from types import ModuleType

from mccl.torch_names import BACKEND, OWN_BACKEND


def change(native: ModuleType) -> None:
    """Adds the names of this backend to the backends that ignite.distributed accepts."""
    model = native._NativeDistModel
    model.available_backends = (*model.available_backends, BACKEND, OWN_BACKEND)
