"""Stores results: one row per contestant, number of ranks and cell, over all rounds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from peers.cells import Cell

FORMAT = 1
FIGURES = ("time_us", "p50_us", "p99_us")
# The root may run ahead of the other ranks, so the time of a single call means little. These
# collectives are compared by the mean of many calls in a row on the slowest rank; all others by the
# median call.
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def figure_of(collective: str) -> str:
    """Returns the name of the figure by which contestants are compared."""
    return "time_us" if collective in ROOTED or is_of_layer(collective) else "p50_us"


def is_of_layer(collective: str) -> bool:
    """True for cells whose two contestants alternate in one process.

    The quickest turn of each is compared, because it was disturbed least.
    """
    return collective.startswith("layer_")


class Key(NamedTuple):
    """Identifies a row."""

    contestant: str
    ranks: int
    cell: Cell


@dataclass
class Row:
    """The figures of each round, or the reason for their absence."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    absent: str | None = None

    def median(self, figure: str) -> float | None:
        """Returns the median of a figure over the rounds."""
        values = [found[figure] for found in self.rounds if figure in found]
        return statistics.median(values) if values else None


@dataclass
class Results:
    """All rows, and information about the run."""

    about: dict[str, Any] = field(default_factory=dict)
    rows: dict[Key, Row] = field(default_factory=dict)

    def row(self, key: Key) -> Row:
        """Returns the row of this key, and makes it if necessary."""
        return self.rows.setdefault(key, Row())

    def add(self, key: Key, found: dict[str, Any]) -> None:
        """Adds the figures of one round."""
        row = self.row(key)
        if "absent" in found:
            row.absent = found["absent"]
        else:
            names = (*FIGURES, "calls")
            row.rounds.append({name: found[name] for name in names if name in found})

    def mark_absent(self, contestant: str, ranks: int, cells: Iterable[Cell], reason: str) -> None:
        """Records why these cells cannot be measured."""
        for cell in cells:
            self.row(Key(contestant, ranks, cell)).absent = reason

    def time_us(self, contestant: str, ranks: int, cell: Cell) -> float | None:
        """Returns microseconds per call, or None if not measured."""
        row = self.rows.get(Key(contestant, ranks, cell))
        return row.median(figure_of(cell.collective)) if row else None

    def fastest(
        self, contestants: Iterable[str], ranks: int, cell: Cell
    ) -> tuple[float, str] | None:
        """Returns the time and name of the fastest of these, or None if none was measured."""
        times = [(self.time_us(name, ranks, cell), name) for name in contestants]
        return min(((time, name) for time, name in times if time is not None), default=None)

    def cells(self, ranks: int) -> dict[str, list[int]]:
        """Returns the sizes of each collective that were requested, in order."""
        sizes: dict[str, set[int]] = {}
        for key in self.rows:
            if key.ranks == ranks:
                sizes.setdefault(key.cell.collective, set()).add(key.cell.bytes)
        return {collective: sorted(found) for collective, found in sizes.items()}

    def ranks(self) -> list[int]:
        """Returns the numbers of ranks that were run."""
        return sorted({key.ranks for key in self.rows})

    def save(self, path: Path) -> None:
        """Writes the results to a JSON file."""
        rows = []
        for key, row in self.rows.items():
            entry: dict[str, Any] = {
                "contestant": key.contestant,
                "ranks": key.ranks,
                **key.cell._asdict(),
                **{figure: row.median(figure) for figure in FIGURES},
                "rounds": row.rounds,
            }
            rows.append(entry | ({"absent": row.absent} if row.absent else {}))
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"format": FORMAT, "about": self.about, "rows": rows}, indent=1)
        path.write_text(text + "\n")


def load(path: Path) -> Results:
    """Reads a file written by `save`."""
    data = json.loads(path.read_text())
    if data.get("format") != FORMAT:
        raise ValueError(f"{path} has format {data.get('format')}; this program reads {FORMAT}")
    results = Results(about=data["about"])
    for entry in data["rows"]:
        key = Key(entry["contestant"], entry["ranks"], Cell(entry["collective"], entry["bytes"]))
        results.rows[key] = Row(entry["rounds"], entry.get("absent"))
    return results
