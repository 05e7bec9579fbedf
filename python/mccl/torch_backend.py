"""The Python side of the backend "mccl" of torch.distributed."""

from __future__ import annotations

import atexit
import importlib
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from . import extensions, frameworks, torch_meeting, torch_names

if TYPE_CHECKING:
    from types import ModuleType

#: Maximum time for which the exit of the process waits for callbacks of futures.
_PATIENCE = timedelta(seconds=5)

_shim: ModuleType | None = None


def register() -> None:
    """Registers the backend with torch.distributed under both names, and the init method "mccl://".

    "env://" then also reads the variables of mpirun, of srun and of MCCL. A second call is a no-op.
    """
    if torch_names.is_registered():
        return
    torch_names.register(create)
    torch_names.wrap_calls(lambda: None if _shim is None else _shim.ProcessGroupMCCL)
    torch_meeting.install(lambda settings: load().open_job_store(settings))
    frameworks.install()


def load() -> ModuleType:
    """The compiled shim.

    Raises:
        ImportError: There is no shim for this torch and Python.
    """
    global _shim
    if _shim is None:
        import torch

        _shim = importlib.import_module(extensions.module_for("torch", torch.__version__))
        os.register_at_fork(
            before=_shim.before_fork,
            after_in_parent=_shim.after_fork_in_parent,
            after_in_child=_shim.after_fork_in_child,
        )
        atexit.register(_shut_down, os.getpid())
        from . import config

        config.warn_while(_has_groups, "the process groups of torch")
    return _shim


def create(options: Any, group_options: Any) -> Any:
    """Makes a process group when torch asks for one; see ``Backend.register_backend``."""
    import torch.distributed as dist

    shim = load()
    from . import config, mps

    mps.complete(shim)
    if group_options is not None and not isinstance(group_options, shim.ProcessGroupMCCL.Options):
        raise TypeError(
            "pg_options of backend mccl must be mccl.torch_backend.Options() or None, not "
            f"{type(group_options).__name__}"
        )
    settings = config.resolved_settings()
    for name in ("compression", "topk_ratio"):
        if group_options is not None and getattr(group_options, name) is not None:
            settings[name] = str(getattr(group_options, name))
    of_torch = shim.torch_ranks(options.store)
    elsewhere = of_torch >= 0 or torch_meeting.meets_elsewhere(options.store)
    if options.global_ranks_in_group and 0 <= of_torch < dist.get_world_size():
        raise RuntimeError(
            f"only {of_torch} of the job's {dist.get_world_size()} ranks use torch, so torch can "
            "make no process group besides the default one; use the default group, or torch on "
            "all ranks"
        )
    reconfigurable = getattr(options, "enable_reconfigure", False)
    if reconfigurable and torch_meeting.meets_elsewhere(options.store):
        raise RuntimeError(
            "enable_reconfigure=True needs a store through which processes can meet again, which "
            "mccl:// lacks for one rank and for MPI; pass store="
        )
    return shim.create(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=_timeout_of(options.timeout, settings),
        name=options.group_id,
        global_ranks=list(options.global_ranks_in_group),
        members=_members(options.global_ranks_in_group, shim),
        settings=settings,
        elsewhere=elsewhere and not reconfigurable,
        reconfigurable=reconfigurable,
    )


def create_apart(store: Any, rank: int, size: int, timeout: timedelta | None, name: str) -> Any:
    """Makes a process group that torch.distributed does not know, for a framework's own groups.

    The group is on a free port, regardless of MCCL_PORT_BASE, because the process may have other
    groups of this kind.

    Args:
        store: Through which the ranks of the group meet.
        rank: This process's rank in the group.
        size: Number of ranks of the group.
        timeout: None means the setting `timeout`.
        name: Name of the group in messages.

    Returns:
        The process group, and its part that is MCCL's.
    """
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.constants import default_pg_timeout

    from . import config

    shim = load()
    settings = config.resolved_settings()
    backend = shim.create(
        store=store,
        rank=rank,
        size=size,
        timeout=timeout or _timeout_of(default_pg_timeout, settings),
        name=name,
        # -1: no rank of this group belongs to torch's default group.
        global_ranks=list(range(size)),
        members=[-1] * size,
        settings=settings | {"port_base": "0"},
        elsewhere=False,
    )
    custom = ProcessGroup.BackendType.CUSTOM
    group = ProcessGroup(store, rank, size)
    group._set_default_backend(custom)
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        group._register_backend(torch.device(device), custom, backend)
    return group, backend


def __getattr__(name: str) -> Any:
    if name in ("ProcessGroupMCCL", "Options"):
        group = load().ProcessGroupMCCL
        return group if name == "ProcessGroupMCCL" else group.Options
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _members(global_ranks: list[int], shim: Any) -> list[int]:
    """Converts ranks of torch to ranks of the default group's context.

    When the default group shrinks, torch renumbers its ranks, but the context keeps its numbers.
    """
    import torch.distributed as dist

    world = dist.group.WORLD
    if world is not None and global_ranks:
        for device in world._device_types:
            backend = world._get_backend(device)
            if isinstance(backend, shim.ProcessGroupMCCL):
                return [backend.members[rank] for rank in global_ranks]
    return list(global_ranks)


def _has_groups() -> bool:
    import torch.distributed as dist

    return _shim is not None and dist.is_initialized() and _shim.has_contexts()


def _timeout_of(given: timedelta, settings: dict[str, str]) -> timedelta:
    """Returns the setting `timeout` if it is set and `given` is torch's default; else `given`."""
    from torch.distributed.constants import default_pg_timeout

    if given == default_pg_timeout and "timeout" in settings:
        return timedelta(seconds=float(settings["timeout"]))
    return given


def _shut_down(process: int) -> None:
    if _shim is not None and os.getpid() == process:
        _shim.shutdown(patience=_PATIENCE)
