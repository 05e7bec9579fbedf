"""Registers the backend's names in torch, and changes functions that check for other backends."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch.distributed as dist

#: The usual name. Other packages register it too, such as Moore Threads' backend for its GPUs.
BACKEND = "mccl"

#: A name that only this package uses.
OWN_BACKEND = "mccl_engine"

#: Devices of the backend, in torch's order of preference; torch finds a group's backend by device.
DEVICES = ["cpu", "cuda", "mps"]

_warned = False


def is_registered() -> bool:
    """True if register() was called before."""
    from torch.distributed.distributed_c10d import Backend

    return OWN_BACKEND.upper() in Backend._plugins


def register(create: Callable[..., Any]) -> None:
    """Registers the backend as BACKEND and OWN_BACKEND; if BACKEND is taken, only as OWN_BACKEND.

    If another package registers BACKEND later, torch uses that package's backend. In both cases,
    one warning is issued.
    """
    from torch.distributed.distributed_c10d import Backend

    torchs = Backend.register_backend
    other = Backend._plugins.get(BACKEND.upper())
    for name in (OWN_BACKEND,) if other else (BACKEND, OWN_BACKEND):
        torchs(name, create, extended_api=True, devices=DEVICES)
    if other:
        _warn_of(other.creator_fn)

    @functools.wraps(torchs.__func__)
    def register_backend(cls: type, name: str, func: Any, *rest: Any, **options: Any) -> None:
        torchs.__func__(cls, name, func, *rest, **options)
        if name.lower() == BACKEND and func is not create:
            _warn_of(func)

    Backend.register_backend = classmethod(register_backend)


def _warn_of(creator: Any) -> None:
    """Warns once that another package has registered BACKEND with `creator`."""
    global _warned
    if _warned:
        return
    _warned = True
    inner = inspect.unwrap(getattr(creator, "func", creator))
    module = getattr(inner, "__module__", None) or type(inner).__module__
    file = getattr(sys.modules.get(module), "__file__", None) or "no file"
    warnings.warn(
        f'in this process, the backend "{BACKEND}" of torch.distributed is that of the module '
        f"{module} ({file}), which has registered the same name; to use this package, call "
        f'init_process_group("{OWN_BACKEND}")',
        RuntimeWarning,
        stacklevel=4,
    )


def wrap_calls(own_type: Callable[[], type | None]) -> None:
    """Makes functions of torch that check for Gloo or NCCL accept groups of this backend.

    Args:
        own_type: Returns the type of this backend's part of a group; None if no such group can
            exist yet.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    def own_parts(group: dist.ProcessGroup | None) -> tuple[list[Any], bool]:
        """Returns MCCL's backend objects of a group, and whether the group has no others."""
        kind = own_type()
        if kind is None or c10d._rank_not_in_group(group):
            return [], False
        group = c10d._get_default_group() if group is None else group
        parts = [group._get_backend(device) for device in group._device_types]
        # With TORCH_DISTRIBUTED_DEBUG=DETAIL, torch wraps each part.
        parts = [getattr(part, "wrapped_pg", part) for part in parts]
        own = [part for part in parts if isinstance(part, kind)]
        return own, len(own) == len(parts)

    c10d.monitored_barrier = _monitored_barrier(c10d.monitored_barrier, own_parts)
    c10d._set_pg_timeout = _set_pg_timeout(c10d._set_pg_timeout, own_parts)
    if hasattr(dist, "monitored_barrier"):  # Otherwise torch copies it from c10d later.
        dist.monitored_barrier = c10d.monitored_barrier


def _monitored_barrier(torchs: Callable[..., None], own_parts: Callable[..., Any]) -> Any:
    @functools.wraps(torchs)
    def monitored_barrier(
        group: dist.ProcessGroup | None = None,
        timeout: timedelta | float | None = None,
        wait_all_ranks: bool = False,
    ) -> None:
        own, _ = own_parts(group)
        if not own:
            return torchs(group, timeout, wait_all_ranks)
        if timeout is None:
            return own[0].monitored_barrier(wait_all_ranks=wait_all_ranks)
        if not isinstance(timeout, timedelta):
            timeout = timedelta(seconds=timeout)
        return own[0].monitored_barrier(timeout, wait_all_ranks)

    return monitored_barrier


def _set_pg_timeout(torchs: Callable[..., None], own_parts: Callable[..., Any]) -> Any:
    @functools.wraps(torchs)
    def _set_pg_timeout(timeout: timedelta, group: dist.ProcessGroup | None = None) -> None:
        own, whole = own_parts(group)
        if not whole:  # torch checks the group, and sets the timeout of its own backends.
            torchs(timeout, group)
        for part in own:
            part._set_default_timeout(timeout)

    return _set_pg_timeout
