"""Makes Ignite accept this backend."""

from __future__ import annotations

from types import ModuleType

from mccl.torch_names import BACKEND, OWN_BACKEND

_OWN = (BACKEND, OWN_BACKEND)


class _MpiOrOwn(str):
    """The name "mpi", which also equals the names of this backend."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other in _OWN or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def change(native: ModuleType) -> None:
    """Adds the names of this backend to the backends that ignite.distributed accepts.

    `auto_model` wraps models in DDP only if the backend equals NCCL, GLOO or MPI of this module.
    """
    model = native._NativeDistModel
    model.available_backends = (*model.available_backends, *_OWN)
    native.MPI = _MpiOrOwn(native.MPI)
