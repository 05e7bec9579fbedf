"""The backend "mccl" of torch.distributed, seen from Python."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

import mccl_engine

if TYPE_CHECKING:
    from types import ModuleType

    import torch.distributed as dist

BACKEND = "mccl"

#: In the order in which torch should think of them; it looks the group's backend up by device.
DEVICES = ["cpu", "cuda", "mps"]

#: The store of a process that is alone in a job that meets elsewhere holds this key: see meet().
_ELSEWHERE = "mccl/elsewhere"

#: How long the end of the process waits for callbacks of futures.
_PATIENCE = timedelta(seconds=5)

_shim: ModuleType | None = None


def register() -> None:
    """Makes "mccl" known to torch.distributed: as a backend, and as a way to meet ("mccl://").

    Doing so twice is harmless.
    """
    from torch.distributed.distributed_c10d import Backend

    if BACKEND.upper() not in Backend._plugins:
        Backend.register_backend(BACKEND, create, extended_api=True, devices=DEVICES)
        # The package has a function of that name too, which hides the module.
        rendezvous = importlib.import_module("torch.distributed.rendezvous")
        rendezvous.register_rendezvous_handler(BACKEND, meet)


def meet(
    url: str, timeout: timedelta | None = None, **_: object
) -> Iterator[tuple[dist.Store, int, int]]:
    """The way to meet of ``init_process_group("mccl", init_method="mccl://")``.

    The ranks meet as those of MLX, NumPy and C++ do: where MCCL_ROOT or the launcher says, or along
    the cables of MCCL_HOSTFILE. So they may be of one job. torch is given the job's own store;
    where ranks of the job are not torch's, it has no further process groups of torch.

    Raises:
        ValueError: Nothing tells this process its rank, or not the one that the caller gives.
    """
    from torch.distributed import HashStore

    from . import _core, config

    settings = config.resolved_settings()
    place = _core.placement(settings, dict(os.environ))
    if place is None:
        raise ValueError(
            f"{url}: nothing tells this process its rank: start it with mccl launch, torchrun, "
            "mpirun or srun, or set MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT"
        )
    given = parse_qs(urlparse(url).query)
    for name, found in (("rank", place["rank"]), ("world_size", place["size"])):
        if name in given and int(given[name][0]) not in (-1, found):
            raise ValueError(
                f"{url}: {name} is {given[name][0]}, but the environment says {found}; leave it out"
            )
    if place["size"] > 1 and settings.get("backend") != "mpi":
        yield load().open_job_store(settings), place["rank"], place["size"]
        return
    store = HashStore()
    store.set(_ELSEWHERE, "")
    yield store, place["rank"], place["size"]


def load() -> ModuleType:
    """The compiled shim.

    Raises:
        ImportError: It is missing, or was built for another torch or Python. Said before the
            library is loaded, since an incompatible one would crash instead.
    """
    global _shim
    if _shim is None:
        _require_matching_build()
        _shim = importlib.import_module("mccl._torch")
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
    """What torch calls to make a process group; see ``Backend.register_backend``."""
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
    elsewhere = of_torch >= 0 or _meets_elsewhere(options.store)
    if options.global_ranks_in_group and 0 <= of_torch < dist.get_world_size():
        raise RuntimeError(
            f"{of_torch} of the job's {dist.get_world_size()} ranks are torch's: it has one "
            "process group of torch, that of all ranks, since torch makes others only where all "
            "ranks are its own"
        )
    return shim.create(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=_timeout_of(options.timeout, settings),
        name=options.group_id,
        global_ranks=list(options.global_ranks_in_group),
        settings=settings,
        elsewhere=elsewhere,
    )


def __getattr__(name: str) -> Any:
    if name in ("ProcessGroupMCCL", "Options"):
        group = load().ProcessGroupMCCL
        return group if name == "ProcessGroupMCCL" else group.Options
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _has_groups() -> bool:
    import torch.distributed as dist

    return _shim is not None and dist.is_initialized() and _shim.has_contexts()


def _meets_elsewhere(store: dist.Store) -> bool:
    from torch.distributed import HashStore, PrefixStore

    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return isinstance(store, HashStore) and store.check([_ELSEWHERE])


def _timeout_of(given: timedelta, settings: dict[str, str]) -> timedelta:
    """torch's timeout, unless that is its default, which a setting of ours may replace."""
    from torch.distributed.constants import default_pg_timeout

    if given == default_pg_timeout and "timeout" in settings:
        return timedelta(seconds=float(settings["timeout"]))
    return given


def _require_matching_build() -> None:
    import torch

    try:
        from . import _torch_build as build
    except ImportError:
        raise ImportError(
            "mccl was installed without its torch extension, as the build saw no torch; "
            f"install it again: {mccl_engine.install_command()}"
        ) from None
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if _minor(build.TORCH) != _minor(torch.__version__) or build.PYTHON != python:
        raise ImportError(
            f"mccl's torch extension was built for torch {build.TORCH} and Python {build.PYTHON}, "
            f"but this is torch {torch.__version__} and Python {python}; build it again: "
            f"{mccl_engine.install_command()}"
        )


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def _shut_down(process: int) -> None:
    if _shim is not None and os.getpid() == process:
        _shim.shutdown(patience=_PATIENCE)
