"""The groups of this process by backend, and which one is the default."""

from __future__ import annotations

import logging
import os
import threading

import mlx.core as mx

from mccl import config

from . import backends
from .loader import load

_log = logging.getLogger("mccl")


class _Registry:
    """The one of this process. Its lock is held while a job is joined."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.groups: dict[str, mx.distributed.Group] = {}
        self.default: mx.distributed.Group | None = None
        #: Why joining failed, so that a helper which asks for the group at every step need not wait
        #: for a connection each time.
        self.failures: dict[str, str] = {}
        self.alone: mx.distributed.Group | None = None
        #: What has been said about being alone; nobody needs to hear it at every step.
        self.said: set[str] = set()


_registry = _Registry()
config.warn_while(lambda: bool(_registry.groups), "the groups of mccl.mlx")


def init(backend: str = backends.ANY, strict: bool = False) -> mx.distributed.Group:
    """The group of all processes of this job, which every function of `mx.distributed` takes.

    A backend that has succeeded is kept: asking again returns the same group. The first that
    succeeds, named or not, is what `any` returns from then on and what functions use that are given
    no group. Blocks until all ranks have come, up to MCCL_CONNECT_TIMEOUT (60 s).

    Args:
        backend: `ring` (MLX_RANK and MLX_HOSTFILE), `mccl` (the job of mccl.distributed: MCCL_RANK,
            MCCL_WORLD_SIZE and MCCL_ROOT, or torchrun, mpirun or srun), `mpi` (the job of mpirun,
            by calls of its MPI library), or `any`: the first of them that the environment asks for.
            `jaccl` and `nccl` are known by name but not part of this version.
        strict: Raise where no group can be made. Otherwise the answer is a group of this process
            alone, in which every operation is a no-op, and a warning in the log `mccl` says why,
            unless nothing in the environment asked for a group.

    Raises:
        ValueError: No backend has this name, or a setting of MCCL has no such value or name.
        RuntimeError: With `strict`: no group could be made; the message has the reason for each
            backend. A later call tries again.
        ImportError: MLX and this package do not match; see mccl.mlx.loader.
    """
    backends.require_known(backend)
    with _registry.lock:
        known = _registry.default if backend == backends.ANY else _registry.groups.get(backend)
        if known is not None:
            return known
        settings = config.resolved_settings()
        refusals: list[backends.Refusal] = []
        names = backends.order_of_any(settings) if backend == backends.ANY else [backend]
        for name in names:
            try:
                return _keep(name, _join(name, settings, strict))
            except backends.Refusal as refusal:
                refusals.append(refusal)
                if not refusal.absent and backend == backends.ANY:
                    break  # it was asked for; another one would be a surprise
        return _without_group(backend, refusals, strict)


def default_group() -> mx.distributed.Group:
    """What functions use that are given no group."""
    return init()


def is_available(backend: str = backends.ANY) -> bool:
    """Whether a backend can communicate in this version of MCCL, whatever the environment says."""
    return backend == backends.ANY or backend in backends.PRESENT


def _join(name: str, settings: dict[str, str], strict: bool) -> mx.distributed.Group:
    if not strict and name in _registry.failures:
        raise backends.Refusal(_registry.failures[name])
    shim = load()
    try:
        job = backends.BACKENDS[name](os.environ, settings)
        return shim.group_of(_world(name, settings, job))
    except (ValueError, RuntimeError, ImportError) as error:
        reason = f"{name}: {error}"
        _registry.failures[name] = reason
        raise backends.Refusal(reason) from error


def _world(name: str, settings: dict[str, str], job: backends.Job) -> object:
    """The group of all ranks, as a capsule. `mccl` is the job of mccl.distributed."""
    if name != "mccl":
        return load().join(_merged(settings, job.settings))
    from mccl import distributed

    return distributed.init().capsule


def _merged(settings: dict[str, str], of_job: dict[str, str]) -> dict[str, str]:
    """Settings that were given win over what is derived from variables of MLX and a hostfile."""
    given = {
        name: settings[name]
        for name in ("listen_addr", "port_base", "log_level")
        if settings.get(name, config.default_text(name)) != config.default_text(name)
    }
    return {**settings, **of_job, **given}


def _keep(name: str, group: mx.distributed.Group) -> mx.distributed.Group:
    _registry.groups[name] = group
    _registry.failures.pop(name, None)
    if _registry.default is None:
        _registry.default = group
    return group


def _without_group(
    backend: str, refusals: list[backends.Refusal], strict: bool
) -> mx.distributed.Group:
    asked = [refusal for refusal in refusals if not refusal.absent] or refusals
    reasons = "; ".join(map(str, asked))
    if strict:
        raise RuntimeError(f"no group can be made: {reasons}") from None
    if reasons not in _registry.said:
        _registry.said.add(reasons)
        nobody_asked = backend == backends.ANY and all(refusal.absent for refusal in refusals)
        level = logging.INFO if nobody_asked else logging.WARNING
        _log.log(level, "this process is alone in its group, and communicates nothing: %s", reasons)
    if _registry.alone is None:
        _registry.alone = load().alone()
    return _registry.alone
