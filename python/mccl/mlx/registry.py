"""The groups of this process by backend, and the default group."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import warnings
from typing import Any

import mlx.core as mx

from mccl import _core, config
from mccl.jaccl import jaccl

from . import backends, side_channel
from .loader import leave_first, load

_log = logging.getLogger("mccl")

Factory = side_channel.Factory


class _Registry:
    """The groups of this process. `lock` is held while a job is joined."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.groups: dict[str, mx.distributed.Group] = {}
        self.default: mx.distributed.Group | None = None
        self.alone: mx.distributed.Group | None = None
        #: The group of mccl.distributed behind groups["mccl"], and whether its calls run on a GPU.
        self.world: Any = None
        self.on_gpu = False
        #: The value of _state() when init() last found that no setting or variable selects a
        #: backend. If the value is still the same, init() returns `alone` immediately, because
        #: programs may call init() at every step.
        self.alone_since: object = None
        #: Messages that were logged, so that each is logged only once.
        self.said: set[str] = set()


_registry = _Registry()
config.warn_while(lambda: bool(_registry.groups), "the groups of mccl.mlx")


def init(
    strict: bool = False,
    backend: str = backends.ANY,
    *,
    all_gather_factory: Factory | None = None,
) -> mx.distributed.Group:
    """The group of all processes of this job, which every function of `mx.distributed` takes.

    A second call with the same backend returns the same group. The group of the first backend that
    succeeds, selected by name or by `any`, becomes the default group of all functions, and `any`
    returns it from then on. Blocks until all ranks have met, at most for MCCL_CONNECT_TIMEOUT (by
    default 60 s).

    Args:
        strict: Whether to raise if nothing in the environment selects a backend. If False, the
            result is then a group of this process alone, in which every operation is a no-op.
        backend: Selects the variables that describe the job: `ring` (MLX_RANK and MLX_HOSTFILE),
            `jaccl` (MLX_RANK, MLX_JACCL_COORDINATOR and MLX_IBV_DEVICES), `nccl` (MLX_RANK,
            MLX_WORLD_SIZE, NCCL_HOST_IP and NCCL_PORT), `mccl` (the job of mccl.distributed:
            MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT, or torchrun, mpirun or srun), `mpi` (the job
            of mpirun or srun, with calls of its MPI library), or `any`: the first of these backends
            that the environment selects. A name in the place of `strict` is also accepted.
        all_gather_factory: `jaccl` only: a function of rank and size. It returns a function of
            bytes and their number, which gathers the bytes of all ranks in the order of ranks. The
            ranks use it to agree on a meeting point, and need no MLX_JACCL_COORDINATOR.

    Raises:
        ValueError: No backend has this name, or a setting of MCCL is unknown or invalid.
        TypeError: `all_gather_factory` cannot be called.
        RuntimeError: The environment selects a backend, or `strict` is set, and no group can be
            made; the message has the reason for each backend. A later call tries again.
        ImportError: MLX and this package do not match; see mccl.mlx.loader.
    """
    if isinstance(strict, str):  # An earlier version had the arguments in this order.
        strict, backend = (backend if isinstance(backend, bool) else False), strict
    if all_gather_factory is not None:
        _check_factory(all_gather_factory, backend)
    if backend == backends.ANY:
        if _registry.default is not None:
            return _registry.default
        if not strict and _registry.alone_since == _state() and _registry.alone is not None:
            return _registry.alone
    backends.require_known(backend)
    with _registry.lock:
        known = _registry.default if backend == backends.ANY else _registry.groups.get(backend)
        return _make(backend, strict, all_gather_factory) if known is None else known


def shrink(*, timeout: float | None = None) -> mx.distributed.Group:
    """Returns a group of the ranks that remain after a rank of backend `mccl` has died.

    It replaces the group that `init(backend="mccl")` returned, which is also the default group if
    it was. Every remaining rank must call it. See shrink() of mccl.distributed's groups.
    """
    with _registry.lock:
        return _replace(_world_to_change("shrink").shrink(timeout=timeout))


def reconfigure(
    *,
    timeout: float | None = None,
    rank: int | None = None,
    size: int | None = None,
    root: str | None = None,
) -> mx.distributed.Group:
    """Meets all ranks of backend `mccl` again, and returns the new group of all ranks.

    It replaces the group that `init(backend="mccl")` returned, which is also the default group if
    it was. Processes that were started in place of dead ranks call init(). If the ranks do not
    meet, the process has no group; a second call, or init(), tries again. See reconfigure() of
    mccl.distributed, also for the arguments.
    """
    from mccl import distributed

    with _registry.lock:
        _world_to_change("reconfigure")
        try:
            return _replace(
                distributed.reconfigure(timeout=timeout, rank=rank, size=size, root=root)
            )
        except Exception:
            if not distributed.is_initialized():
                _forget_groups()
            raise


def _world_to_change(call: str) -> Any:
    if _registry.world is None:
        raise ValueError(
            f"{call}: this process has no group of the backend mccl; call init(backend='mccl') "
            "first"
        )
    return _registry.world


def _drop_errors_of_streams() -> None:
    """Waits for pending calls. The stream of a failed call raises the call's error once more."""
    from .gradients import own_stream

    for stream in (mx.default_stream(mx.cpu), own_stream()):
        with contextlib.suppress(RuntimeError):
            mx.synchronize(stream)


def _replace(world: Any) -> mx.distributed.Group:
    """Makes the ranks of a group of mccl.distributed the group of the backend `mccl`."""
    _drop_errors_of_streams()
    was_default = _forget_groups()
    group = load().group_of(world.capsule, _registry.on_gpu)
    _registry.world = world
    _registry.groups["mccl"] = group
    if was_default or _registry.default is None:
        _registry.default = group
    return group


def _forget_groups() -> bool:
    """Forgets the groups of the job of mccl.distributed. Returns whether one was the default."""
    forgotten = [_registry.groups.pop(name, None) for name in ("mccl", "mpi")]
    was_default = any(group is _registry.default for group in forgotten if group is not None)
    if was_default:
        _registry.default = None
    return was_default


def default_group() -> mx.distributed.Group:
    """The group that functions use if the caller passes no group."""
    return init()


def group_of_call(call: str, group: object) -> mx.distributed.Group:
    """Returns the group passed to a call, or the default group for None."""
    if group is None:
        return default_group()
    if not isinstance(group, mx.distributed.Group):
        raise TypeError(
            f"{call}: group: expected a group from mccl.mlx.init() or its split, or None; found "
            f"{type(group).__name__} {group!r:.60}"
        )
    return group


def is_available(backend: str = backends.ANY) -> bool:
    """True if this machine has what a backend needs, regardless of the environment.

    `ring`, `mccl` and `any` need nothing, `mpi` an MPI library that can be loaded here, `jaccl` an
    RDMA device with an active port, and `nccl` a GPU and an MLX that is built for CUDA. False for
    every other name.
    """
    has = backends.NEEDS.get(backend)
    return backend == backends.ANY or (has is not None and has())


def _check_factory(factory: object, backend: str) -> None:
    if not callable(factory):
        raise TypeError(
            "init: all_gather_factory: expected a function of rank and size; found "
            f"{type(factory).__name__}"
        )
    if backend != "jaccl":
        raise ValueError(
            "init: all_gather_factory works only with backend='jaccl', but the backend is "
            f"{backend!r}; leave all_gather_factory out"
        )


def _state() -> object:
    """Returns a value that changes with every setting and variable that may select a backend."""
    return _core.job_fingerprint(), config.revision()


def _make(backend: str, strict: bool, factory: Factory | None) -> mx.distributed.Group:
    state = _state()
    settings = config.resolved_settings()
    refusals: list[backends.Refusal] = []
    names = backends.order_of_any(settings) if backend == backends.ANY else [backend]
    for name in names:
        try:
            return _keep(name, _join(name, settings, factory))
        except backends.Refusal as refusal:
            refusals.append(refusal)
            if not refusal.absent:
                break  # The environment selects this backend, so no other is tried.
    asked = [refusal for refusal in refusals if not refusal.absent]
    reasons = "; ".join(map(str, asked or refusals))
    if asked or strict:
        raise RuntimeError(f"no group can be made: {reasons}") from refusals[-1].__cause__
    level = logging.INFO
    if backend == backends.ANY:
        _registry.alone_since = state
    else:
        level = logging.WARNING
    _say(level, f"this process is alone in its group and communicates nothing: {reasons}")
    return _alone()


def _alone() -> mx.distributed.Group:
    if _registry.alone is None:
        _registry.alone = load().alone()
    return _registry.alone


def _join(name: str, settings: dict[str, str], factory: Factory | None) -> mx.distributed.Group:
    shim = load()
    try:
        if factory is None:
            job = backends.BACKENDS[name](os.environ, settings)
        else:
            job = jaccl(os.environ, settings, functools.partial(side_channel.meet, factory))
        if job.slower:
            _say(logging.WARNING, job.slower)
        return _alone() if job.alone else _group_of(shim, job, settings)
    except (ValueError, RuntimeError, ImportError) as error:
        raise backends.Refusal(f"{name}: {error}") from error


def _group_of(shim: Any, job: backends.Job, settings: dict[str, str]) -> mx.distributed.Group:
    """The group of all ranks of a job. `mccl` and `mpi` use the job of mccl.distributed."""
    if job.backend not in ("mccl", "mpi"):
        return shim.group_of(shim.join(_merged(settings, job.settings)), job.on_gpu)
    joined = _world_of(job)
    world = shim.group_of(joined.capsule, job.on_gpu)
    if job.backend == "mccl":
        _registry.world, _registry.on_gpu = joined, job.on_gpu
    # Calls of one group must have the same order on all ranks. With its own group, `mpi` does not
    # restrict the order of the calls of `mccl`.
    return world.split(0) if job.backend == "mpi" else world


def _world_of(job: backends.Job) -> Any:
    """Returns the world of mccl.distributed, joined with the settings of `job`."""
    from mccl import distributed

    # At exit, MLX's pending sends must finish before mccl.distributed leaves the job.
    leave_first()
    exists = distributed.is_initialized()
    settings = dict(job.settings)
    if exists:
        settings.pop("log_level", None)
    try:
        return distributed.init(**settings)
    except distributed.InvalidArgument:
        if not exists:
            raise
    warnings.warn(
        f"this process has already joined its job with another backend than {job.backend}, and "
        f"can join only once: the group uses the earlier backend. Use {job.backend} first, or set "
        f"MCCL_BACKEND={job.backend}",
        RuntimeWarning,
        stacklevel=2,
    )
    return distributed.init()


def _merged(settings: dict[str, str], of_job: dict[str, str]) -> dict[str, str]:
    """Returns all settings for a job. Explicit settings override those from MLX's variables."""
    given = {
        name: settings[name]
        for name in ("listen_addr", "port_base", "log_level", "connect_timeout", "job_key")
        if settings.get(name, config.default_text(name)) != config.default_text(name)
    }
    return {**settings, **of_job, **given}


def _keep(name: str, group: mx.distributed.Group) -> mx.distributed.Group:
    _registry.groups[name] = group
    if _registry.default is None:
        _registry.default = group
    return group


def _say(level: int, text: str) -> None:
    if text not in _registry.said:
        _registry.said.add(text)
        _log.log(level, "%s", text)
