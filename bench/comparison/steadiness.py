"""Keeps measurements comparable on a machine whose cores a hypervisor moves.

Speed between two processes depends on the distance of their cores: a flag in memory takes five
times as long between cores that share no cache as between hardware threads of one core. A
hypervisor may move this machine's cores to other physical cores. So each turn (one run of one
contestant) waits for a limited time until the distance is the usual one. The turn is repeated a few
times if the distance has changed at its end.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from comparison.contestant import ROOT

Found = TypeVar("Found")

PROGRAM = ROOT / "build/peers/core_distance"
LOOKS = 15  # measurements that determine the usual distance
PAUSE = 0.4  # seconds between two measurements of the distance
PATIENCE = 12.0  # seconds to wait for the usual distance
ALIKE = 1.5  # distances within this ratio count as equal
ATTEMPTS = 3
GIVE_UP = 3  # unsteady turns in a row after which the usual distance is measured again
LONG_TURN = 15.0  # seconds; a longer turn is not repeated


def distance(program: Path = PROGRAM) -> float | None:
    """Returns nanoseconds of a flag's round trip between two cores, or None if unknown."""
    try:
        found = subprocess.run([program], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return float(found.stdout) if found.stdout.strip() else None


@dataclass
class Steadiness:
    """Repeats turns until one was steady. If distances are unknown, runs each turn once."""

    look: Callable[[], float | None] = distance
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    usual: float | None = None
    turns: int = 0
    repeated: int = 0
    unsteady: int = 0
    in_vain: int = 0  # unsteady turns in a row
    seen: list[float] = field(default_factory=list)

    def begin(self) -> None:
        """Measures the usual distance."""
        self.in_vain = 0
        looks = []
        for _ in range(LOOKS):
            found = self.look()
            if found is None:
                return
            looks.append(found)
            self.sleep(PAUSE)
        self.usual = statistics.median_low(looks)

    def run(self, turn: Callable[[], Found]) -> Found:
        """Returns the result of a steady turn, or of the last one if none was steady."""
        self.turns += 1
        for attempt in range(1, ATTEMPTS + 1):
            self.wait()
            began = self.now()
            found = turn()
            if self.is_usual():
                self.in_vain = 0
                return found
            if self.now() - began > LONG_TURN or attempt == ATTEMPTS:
                break
            self.repeated += 1
        self.unsteady += 1
        self.in_vain += 1
        if self.in_vain == GIVE_UP:  # The cores may have moved permanently.
            self.begin()
        return found

    def wait(self) -> None:
        """Blocks until the distance is usual, for a limited time."""
        until = self.now() + PATIENCE
        while not self.is_usual() and self.now() < until:
            self.sleep(PAUSE)

    def is_usual(self) -> bool:
        """Measures the distance once. True if it is usual or unknown."""
        if self.usual is None:
            return True
        found = self.look()
        if found is None:
            return True
        self.seen.append(found)
        return self.usual / ALIKE < found < self.usual * ALIKE

    def words(self) -> str | None:
        """Summarises the distances for the report."""
        if self.usual is None:
            return None
        low, *_, high = sorted([*self.seen, self.usual, self.usual])
        return (
            f"a flag took {self.usual:.0f} ns from core to core and back in most turns ({low:.0f} "
            f"to {high:.0f} ns overall); of {self.turns} turns, {self.repeated} were repeated "
            f"because it differed, and {self.unsteady} count although it differed"
        )
