"""The job that MLX's jaccl backend would join, for mccl.mlx and mccl.distributed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mccl import _core
from mccl.jobs import (
    Address,
    Environment,
    Job,
    Refusal,
    is_on,
    rank_of,
    require_all,
    split_address,
)

#: Function of rank and size that agrees with the other ranks on a meeting point; returns settings.
Meet = Callable[[int, int], dict[str, str]]

#: Variables of MLX that describe a job. Some front ends of MLX set the names in _OTHER_NAMES
#: instead, which take precedence.
_RANK, _COORDINATOR, _DEVICES = "MLX_RANK", "MLX_JACCL_COORDINATOR", "MLX_IBV_DEVICES"
_OTHER_NAMES = {
    _RANK: "JACCL_RANK",
    _COORDINATOR: "JACCL_COORDINATOR",
    _DEVICES: "JACCL_IBV_DEVICES",
}


def jaccl(environment: Environment, settings: Mapping[str, str], meet: Meet | None = None) -> Job:
    """The job that MLX_RANK, MLX_JACCL_COORDINATOR, MLX_IBV_DEVICES and MLX_JACCL_RING describe.

    JACCL_* names take precedence. If a variable is not set, the equivalent setting of MCCL replaces
    it: MCCL_RANK, MCCL_ROOT, MCCL_RDMA_DEVICE (the path of the table) or MCCL_RDMA_RING. Without
    any variable of MLX, these settings select jaccl only if the first three are all set, because
    each also has a use without jaccl.

    The ranks meet at the coordinator's address, which belongs to rank 0. With `meet`, they use the
    meeting point that it returns, and need no coordinator. The table lists the devices that connect
    each pair of ranks, and must be a mesh or a ring. With MLX_JACCL_RING, only the devices between
    neighbours are used. Pairs whose devices cannot be used communicate over shared memory or TCP,
    with a warning. The setting `rdma_uncabled` decides how pairs without devices communicate.

    Raises:
        Refusal: The variables describe no job, or an invalid job.
    """
    twins = _twins(settings)
    told = {name: environment.get(_OTHER_NAMES[name]) or environment.get(name) for name in twins}
    if meet is not None:
        del told[_COORDINATOR], twins[_COORDINATOR]
    asked = told.get(_COORDINATOR) or told[_DEVICES]
    if not asked and not all(twins.values()):
        raise Refusal(
            "jaccl: neither MLX_JACCL_COORDINATOR nor MLX_IBV_DEVICES is set", absent=True
        )
    given = {name: told[name] or twins[name] for name in twins}
    require_all("jaccl", given)
    wants_ring = (
        is_on(environment, "JACCL_RING")
        or is_on(environment, "MLX_JACCL_RING")
        or settings.get("rdma_ring") == "true"
    )
    path = given[_DEVICES]
    try:
        size = _core.check_device_table(path, wants_ring)
    except ValueError as error:
        raise Refusal(f"jaccl: {error}") from None
    rank = rank_of("jaccl", given[_RANK], size, f"MLX_IBV_DEVICES {path}")
    meeting = meet(rank, size) if meet else {"root": _root_of(given[_COORDINATOR])}
    return Job(
        "jaccl",
        {
            "rank": str(rank),
            "world_size": str(size),
            **meeting,
            "rdma_device": str(Path(path).resolve()),
            **({"rdma_ring": "true"} if wants_ring else {}),
        },
    )


def _root_of(coordinator: str) -> str:
    host, port = split_address(coordinator)
    if not host or not port:
        raise Refusal(
            f"jaccl: MLX_JACCL_COORDINATOR: expected host:port of rank 0; found '{coordinator}'"
        )
    return str(Address(host, port))


def _twins(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns MCCL's settings by the MLX variables that they replace; empty if not set."""
    rank, device = settings.get("rank", ""), settings.get("rdma_device", "")
    return {
        _RANK: "" if rank == "-1" else rank,
        _COORDINATOR: settings.get("root", ""),
        _DEVICES: device if "/" in device else "",
    }
