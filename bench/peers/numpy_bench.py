"""Times the collectives of mccl.distributed on NumPy arrays, as one rank of several.

    python numpy_bench.py --seconds 0.2 all_reduce:8 broadcast:65536 …

Each rank reads MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT from its environment.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from cells import Cell, measure_all

import mccl.distributed as dist


class NumPyTeam:
    """Coordinates the ranks over the measured group."""

    def __init__(self, world: dist.Group) -> None:
        self.world = world
        self.rank = world.rank

    def barrier(self) -> None:
        """Waits for the other ranks."""
        self.world.barrier()

    def agree(self, value: int) -> int:
        """Returns rank 0's value."""
        return int(self.world.broadcast(value))

    def slowest(self, seconds: list[float]) -> list[float]:
        """Returns the largest value over all ranks for each element."""
        return self.world.all_reduce(np.array(seconds), "max").tolist()


def exchange(world: dist.Group, data: np.ndarray, room: np.ndarray) -> None:
    """Sends to the next rank while receiving from the previous one."""
    sent = world.send(data, (world.rank + 1) % world.size, wait=False)
    world.recv(room, (world.rank - 1) % world.size)
    sent.wait()


def call_of(cell: Cell, world: dist.Group) -> Callable[[], Any] | None:
    """Returns the cell's call on its own buffers of zeros, whose sums stay zero in every call."""
    elements = cell.elements(world.size)
    # np.zeros would map one zero page of the system many times, and reads of it would stay in
    # cache.
    whole = np.full(elements, 0, np.float32)
    other = np.full(elements, 0, np.float32)
    part = np.full(max(1, elements // world.size), 0, np.float32)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: world.all_reduce(whole, out=whole),
        "broadcast": lambda: world.broadcast(whole, out=whole),
        "reduce": lambda: world.reduce(whole, out=other),
        "all_gather": lambda: world.all_gather(part, whole),
        "reduce_scatter": lambda: world.reduce_scatter(whole, out=part),
        "all_to_all": lambda: world.all_to_all(whole, other),
        "gather": lambda: world.gather(part, out=whole),
        "scatter": lambda: world.scatter(whole, out=part),
        "sendrecv": lambda: exchange(world, whole, other),
        "barrier": world.barrier,
    }
    return calls.get(cell.collective)


def take_a_core(rank: int, ranks: int) -> None:
    """Binds this rank to its own core if there are enough, as `mccl bench` does."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) >= ranks:
            os.sched_setaffinity(0, {allowed[rank]})


def main() -> int:
    """Joins the group, and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.2, help="duration of a cell")
    parser.add_argument("cells", nargs="+", type=Cell.parse, metavar="COLLECTIVE:BYTES")
    arguments = parser.parse_args()
    world = dist.init()
    take_a_core(world.rank, world.size)
    measure_all(
        arguments.cells,
        lambda cell: call_of(cell, world),
        arguments.seconds,
        NumPyTeam(world),
        "mccl.distributed",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
