"""Times the collectives of mx.distributed, as one rank of several.

    MLX_RANK=0 MLX_HOSTFILE=hosts.json python mlx_bench.py --engine mlx --seconds 0.2 all_reduce:8 …

The engine is MLX's own ring (`mlx`) or MCCL (`mccl`); both read the same hostfile. MLX has no
in-place call, so each call evaluates a new array.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from cells import Cell, measure_all

TITLES = {"mlx": "MLX's ring", "mccl": "MCCL's MLX interface"}


class MlxTeam:
    """Coordinates the ranks with sums of the measured group."""

    def __init__(self, group: mx.distributed.Group) -> None:
        self.group = group
        self.rank = group.rank()

    def barrier(self) -> None:
        """Waits for the other ranks."""
        mx.eval(mx.distributed.all_sum(mx.zeros(1), group=self.group))

    def agree(self, value: int) -> int:
        """Returns rank 0's value."""
        mine = mx.array([value if self.rank == 0 else 0])
        return int(mx.distributed.all_sum(mine, group=self.group).item())

    def slowest(self, seconds: list[float]) -> list[float]:
        """Returns the largest value over all ranks for each element."""
        return mx.distributed.all_max(mx.array(seconds), group=self.group).tolist()


def join(engine: str) -> mx.distributed.Group:
    """Joins the group of all ranks."""
    if engine == "mlx":
        return mx.distributed.init(strict=True, backend="ring")
    import mccl.mlx

    return mccl.mlx.init(True, "ring")


def exchange(data: mx.array, group: mx.distributed.Group) -> None:
    """Sends to the next rank and receives from the previous. Even ranks send first."""
    rank, size = group.rank(), group.size()
    following, previous = (rank + 1) % size, (rank - 1) % size
    if rank % 2 == 0:
        mx.eval(mx.distributed.send(data, following, group=group))
        mx.eval(mx.distributed.recv_like(data, previous, group=group))
    else:
        mx.eval(mx.distributed.recv_like(data, previous, group=group))
        mx.eval(mx.distributed.send(data, following, group=group))


def call_of(cell: Cell, group: mx.distributed.Group) -> Callable[[], Any] | None:
    """Returns the cell's call, on an array made in advance."""
    elements = cell.elements(group.size())
    data = mx.zeros(elements)
    part = mx.zeros(max(1, elements // group.size()))
    mx.eval(data, part)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: mx.eval(mx.distributed.all_sum(data, group=group)),
        "all_gather": lambda: mx.eval(mx.distributed.all_gather(part, group=group)),
        "sendrecv": lambda: exchange(data, group),
    }
    return calls.get(cell.collective)


def main() -> int:
    """Joins the group, and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=sorted(TITLES), default="mlx")
    parser.add_argument("--seconds", type=float, default=0.2, help="duration of a cell")
    parser.add_argument("cells", nargs="+", type=Cell.parse, metavar="COLLECTIVE:BYTES")
    arguments = parser.parse_args()
    mx.set_default_device(mx.cpu)
    group = join(arguments.engine)
    measure_all(
        arguments.cells,
        lambda cell: call_of(cell, group),
        arguments.seconds,
        MlxTeam(group),
        TITLES[arguments.engine],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
