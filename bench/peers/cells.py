"""Code that the Python peers share: cells, and how a cell is measured.

This file mirrors mpi_bench.cpp, whose first comment explains the figures. It uses only the standard
library, because each peer may have its own environment.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

SLOW_CALL = 2.0  # seconds after which a cell makes no further call
BATCHES = 20  # target number per cell
MIN_BATCHES = 3  # minimum per cell; a cell that takes SLOW_CALL ends earlier
MAX_CALLS = 2000  # maximum per batch

# In these collectives, a rank's larger buffer has one part per rank.
IN_PARTS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


class Cell(NamedTuple):
    """A collective, and the bytes of its larger buffer on a rank."""

    collective: str
    bytes: int

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Parses COLLECTIVE:BYTES."""
        collective, _, size = text.partition(":")
        if not size.isdigit():
            raise ValueError(f"'{text}' is not COLLECTIVE:BYTES")
        return cls(collective, int(size))

    def __str__(self) -> str:
        return f"{self.collective}:{self.bytes}"

    def elements(self, ranks: int) -> int:
        """Returns the number of floats in that buffer, rounded up to equal parts if needed."""
        elements = max(1, self.bytes // 4)
        return -(-elements // ranks) * ranks if self.collective in IN_PARTS else elements


class Team(Protocol):
    """The operations that measuring needs from the peer under test."""

    rank: int

    def barrier(self) -> None:
        """Waits for the other ranks."""

    def agree(self, value: int) -> int:
        """Returns rank 0's value on every rank."""

    def slowest(self, seconds: list[float]) -> list[float]:
        """Returns the largest value over all ranks for each element."""


@dataclass
class Times:
    """Seconds of each call, and mean seconds per call of each batch."""

    calls: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)


def emit(line: dict[str, Any]) -> None:
    """Prints one line of JSON for compare.py."""
    print(json.dumps(line), flush=True)


def run_batch(call: Callable[[], Any], calls: int, team: Team, times: Times) -> None:
    """Makes `calls` calls in a row."""
    team.barrier()
    clock = time.perf_counter
    begin = before = clock()
    for _ in range(calls):
        call()
        after = clock()
        times.calls.append(after - before)
        before = after
    times.batches.append((before - begin) / calls)


def next_batch(times: Times, spent: float, seconds: float) -> int:
    """Returns the number of calls in the next batch, for BATCHES in `seconds`; 0 ends the cell."""
    if spent >= SLOW_CALL or (len(times.batches) >= MIN_BATCHES and spent >= seconds):
        return 0
    return int(max(1, min(MAX_CALLS, seconds / BATCHES / min(times.batches))))


def at_share(values: Sequence[float], share: float) -> float:
    """Returns the value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def figures_of(times: Times) -> dict[str, float]:
    """Returns the figures reported for a cell."""
    return {
        "time_us": statistics.median(times.batches) * 1e6,
        "p50_us": statistics.median(times.calls) * 1e6,
        "p99_us": at_share(times.calls, 0.99) * 1e6,
        "calls": len(times.calls),
    }


def measure(cell: Cell, call: Callable[[], Any], seconds: float, team: Team) -> None:
    """Times one cell. Rank 0 prints the figures."""
    first = Times()
    # The first call makes connections and touches memory. It counts only if no other call follows.
    run_batch(call, 1, team, first)
    begin = time.perf_counter()
    times = Times()
    calls = team.agree(next_batch(first, first.batches[0], seconds))
    while calls > 0:
        run_batch(call, calls, team, times)
        calls = team.agree(next_batch(times, time.perf_counter() - begin, seconds))
    if not times.calls:
        times = first
    found = Times(times.calls, team.slowest(times.batches))
    if team.rank == 0:
        emit({**cell._asdict(), **figures_of(found)})


def measure_all(
    cells: Sequence[Cell],
    call_of: Callable[[Cell], Callable[[], Any] | None],
    seconds: float,
    team: Team,
    peer: str,
) -> None:
    """Times every cell. `call_of` returns a cell's call, or None if the peer lacks it."""
    for cell in cells:
        if team.rank == 0:
            emit({"begin": str(cell)})
        call = call_of(cell)
        if call is not None:
            measure(cell, call, seconds, team)
        elif team.rank == 0:
            emit({**cell._asdict(), "absent": f"{peer} has none"})
