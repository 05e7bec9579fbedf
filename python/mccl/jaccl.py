"""The job that MLX's jaccl would be, for mccl.mlx and mccl.distributed."""

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

#: Finds out, together with the other ranks, with which settings this rank meets them.
Meet = Callable[[int, int], dict[str, str]]

#: What tells of a job, by MLX's names; front ends set JACCL_* over MLX_JACCL_* and MLX_*.
_RANK, _COORDINATOR, _DEVICES = "MLX_RANK", "MLX_JACCL_COORDINATOR", "MLX_IBV_DEVICES"
_OTHER_NAMES = {
    _RANK: "JACCL_RANK",
    _COORDINATOR: "JACCL_COORDINATOR",
    _DEVICES: "JACCL_IBV_DEVICES",
}


def jaccl(environment: Environment, settings: Mapping[str, str], meet: Meet | None = None) -> Job:
    """From MLX_RANK, MLX_JACCL_COORDINATOR, MLX_IBV_DEVICES and MLX_JACCL_RING.

    JACCL_* names go first. MCCL's own twins are MCCL_RANK, MCCL_ROOT, MCCL_RDMA_DEVICE (the path of
    the table) and MCCL_RDMA_RING, which stand in for what is not set; alone they ask for it only
    together, since each means something without jaccl too.

    The ranks meet at the coordinator's address, which is rank 0's, or where `meet` says, and then
    no coordinator is needed. The table says by which devices
    each pair reaches each other: a mesh or a ring, and with MLX_JACCL_RING only the devices between
    neighbours are used. Where ranks cannot use theirs they take shared memory or TCP, as a warning
    says; what becomes of pairs without one, the setting `rdma_uncabled` says.
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
    """What MCCL's settings tell, by MLX's names; empty where they tell nothing."""
    rank, device = settings.get("rank", ""), settings.get("rdma_device", "")
    return {
        _RANK: "" if rank == "-1" else rank,
        _COORDINATOR: settings.get("root", ""),
        _DEVICES: device if "/" in device else "",
    }
