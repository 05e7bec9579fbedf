"""Runs all contestants in several rounds, so that disturbances affect all of them."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from comparison.contestant import Contestant, Launch, Setting
from comparison.launch import Outcome, launch
from comparison.machine import add_bounds
from comparison.results import Key, Results
from comparison.steadiness import Steadiness
from peers.cells import SLOW_CALL, Cell

PROBE = tuple(Cell("all_reduce", size) for size in (8, 64 << 10, 1 << 20, 16 << 20))
PROBE_SECONDS = 0.05


class Progress(Protocol):
    """Receives the progress of a run."""

    def step(self, words: str) -> None:
        """Reports that another launch begins."""


@dataclass
class Plan:
    """The measurements to make."""

    contestants: Sequence[Contestant]
    cells: dict[int, dict[str, list[Cell]]]  # Keys: number of ranks, contestant.
    rounds: int = 3
    seconds: float = 0.2
    limit: float = 60.0

    def launches(self) -> int:
        """Returns the number of launches if none fails."""
        settings = sum(
            len(contestant.settings(ranks)) if len(contestant.settings(ranks)) > 1 else 0
            for ranks, wanted in self.cells.items()
            for contestant in self.contestants
            if wanted.get(contestant.name)
        )
        wanted = sum(bool(cells) for by_name in self.cells.values() for cells in by_name.values())
        return settings + self.rounds * wanted


@dataclass
class Runner:
    """Runs a plan and stores its figures in `results`."""

    plan: Plan
    results: Results
    progress: Progress
    steadiness: Steadiness = field(default_factory=Steadiness)
    chosen: dict[tuple[str, int], Setting] = field(default_factory=dict)

    def run(self) -> None:
        """Runs all rounds for each number of ranks. Each round begins with another contestant."""
        self.results.about.setdefault("contestants", {})
        self.steadiness.begin()
        for ranks, wanted in self.plan.cells.items():
            present = [c for c in self.plan.contestants if wanted.get(c.name)]
            present = [c for c in present if self.is_present(c, ranks, wanted[c.name])]
            for contestant in present:
                self.choose_setting(contestant, ranks)
            for turn in range(self.plan.rounds):
                shift = turn % len(present) if present else 0
                for contestant in present[shift:] + present[:shift]:
                    words = f"round {turn + 1}/{self.plan.rounds}, {ranks} ranks, {contestant.name}"
                    self.progress.step(words)
                    self.measure(contestant, ranks, wanted[contestant.name])

    def is_present(self, contestant: Contestant, ranks: int, cells: Sequence[Cell]) -> bool:
        """Returns whether the contestant is installed. If not, its rows say how to install it."""
        missing = contestant.missing()
        about = self.results.about["contestants"].setdefault(
            contestant.name, {"title": contestant.title, "settings": {}}
        )
        if missing is not None:
            about["missing"] = missing
            self.results.mark_absent(contestant.name, ranks, cells, missing)
        return missing is None

    def choose_setting(self, contestant: Contestant, ranks: int) -> None:
        """Selects the setting with the fastest all-reduce, by the geometric mean over sizes."""
        settings = contestant.settings(ranks)
        if len(settings) > 1:
            settings = sorted(settings, key=lambda s: self.probe(contestant, ranks, s))
        self.chosen[contestant.name, ranks] = settings[0]
        words = settings[0].words
        if len(settings) > 1:
            words += "; faster here than: " + "; ".join(s.words for s in settings[1:])
        self.results.about["contestants"][contestant.name]["settings"][str(ranks)] = words

    def probe(self, contestant: Contestant, ranks: int, setting: Setting) -> float:
        """Times a setting. Returns the sum of the logarithms of the times; smaller is faster."""
        self.progress.step(f"trying settings, {ranks} ranks, {contestant.name}: {setting.words}")
        with tempfile.TemporaryDirectory() as folder:
            start = Launch(ranks, PROBE_SECONDS, PROBE, setting, Path(folder))
            outcome = launch(contestant.commands(start), self.plan.limit)
        times = [line["p50_us"] for line in outcome.lines if "p50_us" in line]
        missing = len(PROBE) - len(times)
        # A failed cell counts as one minute.
        return sum(map(math.log, times)) + missing * math.log(60e6)

    def measure(self, contestant: Contestant, ranks: int, cells: Sequence[Cell]) -> None:
        """Runs one round of a contestant. After a failure, starts it again for the other cells."""
        left = [cell for cell in cells if self.is_open(contestant, ranks, cell)]
        while left:
            outcome = self.steadiness.run(partial(self.turn, contestant, ranks, left))
            done = set()
            for line in outcome.lines:
                if "bounds" in line:
                    add_bounds(self.results, contestant.name, ranks, cells, line["bounds"])
                elif "collective" in line:
                    cell = Cell(line["collective"], line["bytes"])
                    self.results.add(Key(contestant.name, ranks, cell), line)
                    done.add(cell)
            left = [cell for cell in left if cell not in done]
            if not left:
                self.note_late_failure(contestant, ranks, outcome.failure)
                break
            failure = outcome.failure or "no output for this cell"
            lost = self.lost_to(outcome.cell, left)
            self.results.mark_absent(contestant.name, ranks, lost, failure)
            left = [cell for cell in left if cell not in lost]

    def turn(self, contestant: Contestant, ranks: int, cells: Sequence[Cell]) -> Outcome:
        """Launches the contestant once."""
        with tempfile.TemporaryDirectory() as folder:
            setting = self.chosen[contestant.name, ranks]
            start = Launch(ranks, self.plan.seconds, cells, setting, Path(folder))
            return launch(contestant.commands(start), self.plan.limit)

    def note_late_failure(self, contestant: Contestant, ranks: int, failure: str | None) -> None:
        """Records a failure that occurred after all cells were measured."""
        note = f"{contestant.title}, {ranks} ranks, after its last figure: {failure}"
        notes = self.results.about.setdefault("notes", [])
        if failure is not None and note not in notes:
            notes.append(note)

    def is_open(self, contestant: Contestant, ranks: int, cell: Cell) -> bool:
        """True if the cell needs a further round."""
        time = self.results.time_us(contestant.name, ranks, cell)
        slow = time is not None and time > SLOW_CALL * 1e6
        return self.results.row(Key(contestant.name, ranks, cell)).absent is None and not slow

    @staticmethod
    def lost_to(cell: Cell | None, left: Sequence[Cell]) -> list[Cell]:
        """Returns the cells to skip after a failure in `cell`: it, and larger ones of its call."""
        if cell is None:
            return list(left)
        return [
            other
            for other in left
            if other.collective == cell.collective and other.bytes >= cell.bytes
        ]
