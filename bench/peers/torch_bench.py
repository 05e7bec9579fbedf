"""Times the collectives of a torch.distributed backend, as one rank of several.

    python torch_bench.py --backend gloo --seconds 0.2 all_reduce:8 broadcast:65536 …

Each rank reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from its environment.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from cells import Cell, measure_all


class TorchTeam:
    """Coordinates the ranks over the measured group, so that no other group is needed."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()

    def barrier(self) -> None:
        """Waits for the other ranks."""
        dist.barrier()

    def agree(self, value: int) -> int:
        """Returns rank 0's value."""
        agreed = torch.tensor(value)
        dist.broadcast(agreed, src=0)
        return int(agreed)

    def slowest(self, seconds: list[float]) -> list[float]:
        """Returns the largest value over all ranks for each element."""
        values = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values.tolist()


def exchange(data: torch.Tensor, room: torch.Tensor) -> None:
    """Sends to the next rank while receiving from the previous one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    operations = [
        dist.P2POp(dist.isend, data, (rank + 1) % size),
        dist.P2POp(dist.irecv, room, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def call_of(cell: Cell) -> Callable[[], Any] | None:
    """Returns the cell's call on its own buffers of zeros, whose sums stay zero in every call."""
    rank, size = dist.get_rank(), dist.get_world_size()
    elements = cell.elements(size)
    whole = torch.zeros(elements)
    other = torch.zeros(elements)
    part = torch.zeros(max(1, elements // size))
    parts = list(whole.split(max(1, elements // size)))
    mine = parts if rank == 0 else None
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "broadcast": lambda: dist.broadcast(whole, src=0),
        "reduce": lambda: dist.reduce(whole, dst=0),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "gather": lambda: dist.gather(part, mine, dst=0),
        "scatter": lambda: dist.scatter(part, mine, src=0),
        "sendrecv": lambda: exchange(whole, other),
        "barrier": dist.barrier,
    }
    return calls.get(cell.collective)


def main() -> int:
    """Joins the group, and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", required=True)
    parser.add_argument("--seconds", type=float, default=0.2, help="duration of a cell")
    parser.add_argument("cells", nargs="+", type=Cell.parse, metavar="COLLECTIVE:BYTES")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.backend == "mccl":
        import mccl  # noqa: F401  (registers the backend)
    dist.init_process_group(arguments.backend)
    try:
        measure_all(arguments.cells, call_of, arguments.seconds, TorchTeam(), arguments.backend)
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
