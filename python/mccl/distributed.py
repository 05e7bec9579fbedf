"""Collective communication between processes, on arrays in host memory.

    import numpy as np
    import mccl.distributed as dist

    world = dist.init()
    total = world.all_reduce(np.ones(4))

Arrays may be NumPy arrays, objects with ``__dlpack__`` or the buffer protocol, or anything that
``numpy.asarray`` accepts. ``help(dist.Group)`` documents the calls, and docs/numpy.md shows
examples.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import operator
import os
import sys
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("numpy") is None:
    raise ModuleNotFoundError(
        "mccl.distributed needs NumPy: pip install numpy ml_dtypes", name="numpy"
    )

import numpy

from mccl import _distributed, config
from mccl._distributed import Group, Work
from mccl.errors import (
    AbortedError,
    CorruptionError,
    Error,
    InvalidArgument,
    MismatchError,
    PeerError,
    TimeoutError,
)
from mccl.jaccl import jaccl
from mccl.jobs import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import SupportsIndex

    from numpy.typing import DTypeLike, NDArray

    from mccl.config import SettingValue

__all__ = [
    "AbortedError",
    "CorruptionError",
    "Error",
    "Group",
    "InvalidArgument",
    "MismatchError",
    "PeerError",
    "TimeoutError",
    "Work",
    "empty",
    "init",
    "is_initialized",
    "reconfigure",
    "shutdown",
]

_lock = threading.Lock()
#: Settings with which the current world was made, as text by name; empty outside a job.
_settings: dict[str, str] = {}


def init(
    *,
    rank: int | None = None,
    size: int | None = None,
    root: str | None = None,
    backend: str | None = None,
    **settings: SettingValue | os.PathLike[str] | None,
) -> Group:
    """Joins the job and returns the group of all its ranks (the world).

    Arguments that are not given come from mccl.init() and the environment, where a launcher sets
    them. A process with neither rank nor size is a world of one, in which every call works. A
    second call returns the same group. Blocks until all ranks have met. Thread-safe.

    Args:
        rank: This process's rank, from 0 to size - 1. Setting `rank`.
        size: Number of ranks. Setting `world_size`.
        root: "host:port" of rank 0, with any free port there. Setting `root`.
        backend: "jaccl" joins the job that MLX_RANK, MLX_JACCL_COORDINATOR and MLX_IBV_DEVICES
            describe, over the RDMA devices of the table in MLX_IBV_DEVICES (docs/rdma.md);
            arguments given here override these variables. Any other value is the setting `backend`.
        **settings: Other settings of mccl.config by name. None means not given.

    Raises:
        InvalidArgument: A value is wrong, rank or size is missing, jaccl's variables describe no
            job, or the world exists and was made with other settings than those given.
        TimeoutError: Other ranks did not arrive within the setting `connect_timeout`, in seconds.
        MismatchError: The ranks' settings differ where they must agree.
        PeerError: Another rank cannot be reached, or has left.
    """
    given = {"rank": rank, "world_size": size, "root": root, **settings}
    if backend != "jaccl":
        given["backend"] = backend
    texts = _checked({name: value for name, value in given.items() if value is not None})
    if backend == "jaccl":
        texts = {**_settings_of_jaccl(texts), **texts}
    with _lock:
        world = _distributed.world()
        if world is None:
            # After a failed reconfigure(), the process still belongs to its job.
            resolved = {**(_settings or config.resolved_settings()), **texts}
            world = _distributed.start(resolved)
            _settings.clear()
            _settings.update(resolved)
        for name, text in texts.items():
            made_with = _settings.get(name, config.default_text(name))
            if made_with != text:
                raise InvalidArgument(
                    f"init: {name} is {text}, but the world was made with {made_with}; "
                    "call shutdown() before making another world"
                )
        return world


def reconfigure(
    *,
    timeout: float | None = None,
    rank: int | None = None,
    size: int | None = None,
    root: str | None = None,
) -> Group:
    """Leaves the job, meets all its ranks again, and returns the new group of all ranks.

    Brings processes into the job that were started in place of dead ranks. Every living rank must
    call it, also on groups that shrink() has made smaller; the new processes call init() with the
    same rank, size and root as the dead ones. Rank 0 may be among them. Blocks until all ranks
    have met. Pending calls and the earlier groups fail. Thread-safe.

    The job changes its size if all ranks pass the new size. If the host of rank 0 is gone, all
    ranks pass the address of another host, where the process with rank 0 then runs.

    Args:
        timeout: Maximum time to wait for all ranks, in seconds. Rank 0 takes up to 5 s more, in
            which it reports to the others why it gives up. None: the setting `connect_timeout`.
        rank: New rank of this process. None: as before.
        size: New number of ranks. None: as before.
        root: New "host:port" of rank 0. None: as before.

    Raises:
        InvalidArgument: The process is in no job, or a value is wrong.
        TimeoutError: Other ranks did not arrive in time. The process then has no world; a second
            call, or init(), tries again.
        PeerError: Another rank cannot be reached, has left or has given up. A second call tries
            again.
    """
    if isinstance(timeout, (int, float)) and not timeout > 0:
        raise InvalidArgument(f"reconfigure: timeout: expected a positive number; found {timeout}")
    given = {} if timeout is None else {"connect_timeout": timeout}
    changes = _checked(given, call="reconfigure: timeout")
    place = {"rank": rank, "world_size": size, "root": root}
    place = _checked(
        {name: value for name, value in place.items() if value is not None}, call="reconfigure"
    )
    _distributed.refuse_in_callback()
    with _lock:
        if not _settings:
            raise InvalidArgument("reconfigure: this process is in no job; call init()")
        if place:
            if _settings["backend"] == "mpi":
                raise InvalidArgument("reconfigure: MPI gives rank, size and root; pass none")
            names = ("rank", "world_size", "root")
            before = zip(names, map(str, _distributed.place_of(_settings)), strict=True)
            place = dict(before) | place
        resolved = {**_settings, **place, **changes}
        _distributed.place_of(resolved)
        _distributed.shutdown()
        _settings.update(place)
        return _distributed.start(resolved)


def empty(
    shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = "float32"
) -> NDArray[Any]:
    """Makes an array with uninitialised elements for collectives.

    The other ranks of this host read its memory where it lies, so large calls need not copy the
    data for them first. Calls work with every array; such arrays make them faster. The memory is
    freed with the array, which may outlive the job. A forked child shares it with its parent.
    Thread-safe.

    Raises:
        InvalidArgument: A length or the type is wrong, or this process is in no job.
        Error: There is not enough memory.
    """
    kind = numpy.dtype(dtype)
    if kind.hasobject or kind.itemsize == 0:
        raise InvalidArgument(f"empty: elements of type {kind} are no plain memory")
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    lengths = [operator.index(length) for length in given]
    if any(length < 0 for length in lengths):
        raise InvalidArgument(f"empty: negative length in {lengths}")
    if (size := math.prod(lengths) * kind.itemsize) > sys.maxsize:
        raise InvalidArgument(f"empty: an array of lengths {lengths} is too large")
    return _distributed.allocate(size).view(kind).reshape(lengths)


def is_initialized() -> bool:
    """True if init() has made a world that has not been shut down."""
    return _distributed.world() is not None


config.warn_while(is_initialized, "the world of mccl.distributed")


def shutdown() -> None:
    """Leaves the job: notifies the other ranks, and fails pending calls.

    Also runs when the process ends. No-op without a world.
    """
    _distributed.refuse_in_callback()
    with _lock:
        _distributed.shutdown()
        _settings.clear()


def _checked(settings: dict[str, Any], call: str = "init") -> dict[str, str]:
    """The settings as text for the library."""
    try:
        return config.texts_of(settings)
    except ValueError as error:
        raise InvalidArgument(f"{call}: {error}") from None


def _settings_of_jaccl(given: dict[str, str]) -> dict[str, str]:
    """Returns settings for the job of MLX's variables. MCCL's settings replace unset variables."""
    try:
        return jaccl(os.environ, {**config.resolved_settings(), **given}).settings
    except Refusal as refusal:
        raise InvalidArgument(f"init: {refusal}") from None


async def _finish(work: Work[Any]) -> Any:
    """Implements ``await work``."""
    if not work.done():
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def settle() -> None:
            if not over.done():
                over.set_result(None)

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed, and nothing waits.
                loop.call_soon_threadsafe(settle)

        work.on_done(notify)
        await over
    return work.result()


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _settings.clear()  # The child is not in its parent's job.
    _distributed.after_fork_in_child()


def _shut_down(process: int) -> None:
    if os.getpid() == process:
        shutdown()
        _distributed.close_stores()


os.register_at_fork(
    before=_distributed.before_fork,
    after_in_parent=_distributed.after_fork_in_parent,
    after_in_child=_forget_after_fork,
)
atexit.register(_shut_down, os.getpid())
