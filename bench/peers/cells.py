"""What the Python peers share: cells, and how one is measured.

It mirrors mpi_bench.cpp, whose comment tells what the figures mean. Nothing but the standard
library, as each peer may live in an environment of its own.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

SLOW_CALL = 2.0  # seconds after which a cell makes no further call
BATCHES = 20  # that a cell aims at
MIN_BATCHES = 3  # however slow a call is, up to SLOW_CALL
MAX_CALLS = 2000  # in a batch

# Each rank's larger buffer is one part per rank here.
IN_PARTS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


class Cell(NamedTuple):
    """A collective, and the bytes of its larger buffer on a rank."""

    collective: str
    bytes: int

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Reads COLLECTIVE:BYTES."""
        collective, _, size = text.partition(":")
        if not size.isdigit():
            raise ValueError(f"'{text}' is not COLLECTIVE:BYTES")
        return cls(collective, int(size))

    def __str__(self) -> str:
        return f"{self.collective}:{self.bytes}"

    def elements(self, ranks: int) -> int:
        """Floats of that buffer, a multiple of the ranks where each has a part of it."""
        elements = max(1, self.bytes // 4)
        return -(-elements // ranks) * ranks if self.collective in IN_PARTS else elements


class Team(Protocol):
    """What the measuring needs of the peer under test."""

    rank: int

    def barrier(self) -> None:
        """Meets the other ranks."""

    def agree(self, value: int) -> int:
        """Rank 0's value, on every rank."""

    def slowest(self, seconds: list[float]) -> list[float]:
        """The largest of every rank's, one by one."""


@dataclass
class Times:
    """Seconds of each call, and seconds a call of each batch."""

    calls: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)


def emit(line: dict[str, Any]) -> None:
    """One line for the harness."""
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
    """Calls of the next batch, so that there are BATCHES in `seconds`; 0 ends the cell."""
    if spent >= SLOW_CALL or (len(times.batches) >= MIN_BATCHES and spent >= seconds):
        return 0
    return int(max(1, min(MAX_CALLS, seconds / BATCHES / min(times.batches))))


def at_share(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def figures_of(times: Times) -> dict[str, float]:
    """What is reported of a cell."""
    return {
        "time_us": statistics.median(times.batches) * 1e6,
        "p50_us": statistics.median(times.calls) * 1e6,
        "p99_us": at_share(times.calls, 0.99) * 1e6,
        "calls": len(times.calls),
    }


def measure(cell: Cell, call: Callable[[], Any], seconds: float, team: Team) -> None:
    """Times one cell, and prints what rank 0 knows then."""
    first = Times()
    # It makes connections and touches memory; it counts only where one call is enough.
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
    """Times every cell; `call_of` makes a cell's call, or None where the peer has none such."""
    for cell in cells:
        if team.rank == 0:
            emit({"begin": str(cell)})
        call = call_of(cell)
        if call is not None:
            measure(cell, call, seconds, team)
        elif team.rank == 0:
            emit({**cell._asdict(), "absent": f"{peer} has none"})
