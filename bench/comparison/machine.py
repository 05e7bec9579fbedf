"""Adds the limits of the machine's memory and sockets as rows to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comparison.contestant import cores
from comparison.results import Key, Results
from peers.cells import Cell

PASS = "bound-pass"
SOCKETS = "bound-sockets"
LINE = "line"
CALL = "mpi-call"

TITLES = {
    PASS: "one pass over memory",
    SOCKETS: "raw sockets, both ways",
    LINE: "the line itself",
    CALL: "the MPI's own call",
}

# Maps each limit to its rate in the report of `mccl bench`, and to the contestant in whose run it
# is measured. PASS: all ranks copy their buffers to a small buffer in cache and back, at the same
# time. SOCKETS: a plain socket with both directions busy, because an all-reduce of two ranks sends
# the whole buffer in each direction.
RATES = {PASS: ("pass_all_gbs", "mccl"), SOCKETS: ("tcp_both_ways_gbs", "mccl-tcp")}


def add_bounds(
    results: Results, contestant: str, ranks: int, cells: Sequence[Cell], rates: dict[str, Any]
) -> None:
    """Adds a round of the machine's limits for the all-reduces among the cells."""
    for name, (rate_name, measured_by) in RATES.items():
        rate = rates.get(rate_name)
        # PASS needs one core per rank: ranks that share a core do not copy at the same time.
        most_ranks = 2 if name == SOCKETS else cores()
        if contestant != measured_by or not rate or ranks > most_ranks:
            continue
        for cell in cells:
            if cell.collective == "all_reduce" and cell.bytes >= 1 << 20:
                microseconds = cell.bytes / (rate * 1e9) * 1e6
                results.add(
                    Key(name, ranks, cell), {"time_us": microseconds, "p50_us": microseconds}
                )
