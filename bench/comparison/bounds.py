"""Reads the ratios that must hold, finds the cells that they need, and checks them.

An entry may also give a weaker ratio, to detect regressions while the ratio is not reached yet, or
while runs differ by more than its margin.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comparison.contestants import PEERS_ALL
from comparison.results import Results
from comparison.sizes import parse_size, show_size
from comparison.table import ratio_of, show_ratio
from peers.cells import Cell

FIELDS = {"name", "contestant", "against", "ranks", "collective", "bytes", "at_most"}
OPTIONAL = {"transport", "plus_us", "until_then"}
EVERY = "every"
PEERS_WORD = "peers"


@dataclass(frozen=True)
class Bound:
    """The contestant's time is at most `at_most` times that of the fastest of `against`.

    The time may exceed that by `plus_us` microseconds. `until_then` is a weaker ratio, which must
    hold until `at_most` is reached.
    """

    name: str
    contestant: str
    against: tuple[str, ...]
    ranks: int
    cell: Cell
    at_most: float
    plus_us: float = 0.0
    until_then: float | None = None

    def limit(self) -> str:
        """Formats the limit for display."""
        most = show_ratio(self.at_most)
        return f"{most} + {self.plus_us:g} us" if self.plus_us else most

    def limit_until_then(self) -> str:
        """Formats the weaker limit for display, or returns "" if there is none."""
        return "" if self.until_then is None else show_ratio(self.until_then)


@dataclass(frozen=True)
class Verdict:
    """A bound and the measured ratio, which is None if it was not measured."""

    bound: Bound
    ratio: float | None
    rival: str = ""
    rival_us: float = 0.0

    @property
    def reached(self) -> bool:
        """True if the ratio was measured and is within the bound."""
        return self.within(self.bound.at_most)

    @property
    def holds(self) -> bool:
        """True if the ratio was measured and is within the bound or the weaker limit."""
        return self.reached or (
            self.bound.until_then is not None and self.within(self.bound.until_then)
        )

    def within(self, at_most: float) -> bool:
        """True if the ratio was measured and is within the limit `at_most`."""
        if self.ratio is None:
            return False
        return self.ratio * self.rival_us <= at_most * self.rival_us + self.bound.plus_us

    def word(self) -> str:
        """Returns the verdict in a word or two."""
        if self.ratio is None:
            return "not measured"
        return "holds" if self.reached else "not yet" if self.holds else "BROKEN"

    def line(self) -> str:
        """Returns one line for display."""
        bound = self.bound
        found = f"{show_ratio(self.ratio)} of {self.rival}" if self.ratio is not None else "unknown"
        size = f" {show_size(bound.cell.bytes)}" if bound.cell.bytes else ""
        where = f"{bound.contestant}, {bound.ranks} ranks, {bound.cell.collective}{size}"
        until_then = bound.limit_until_then()
        meanwhile = f", until then {until_then}" if until_then and not self.reached else ""
        return (
            f"{self.word():12}  {bound.name} ({where}): {found}, at most {bound.limit()}{meanwhile}"
        )


def expand(entry: dict, sizes: Sequence[int]) -> list[Bound]:
    """Returns the bounds of one entry of the file: one per number of ranks, collective and size."""
    unknown = entry.keys() - FIELDS - OPTIONAL
    absent = FIELDS - entry.keys()
    if unknown or absent:
        raise ValueError(
            f"bound '{entry.get('name', '?')}': unknown {sorted(unknown)}, absent {sorted(absent)}"
        )
    transport = entry.get("transport", "auto")
    suffix = "" if transport == "auto" else f"-{transport}"
    against = entry["against"]
    if against == PEERS_WORD:
        against = PEERS_ALL
    as_list = lambda value: value if isinstance(value, list) else [value]  # noqa: E731
    found = entry["bytes"]
    wanted = list(sizes) if found == EVERY else [parse_size(str(size)) for size in as_list(found)]
    return [
        Bound(
            entry["name"],
            entry["contestant"] + suffix,
            tuple(against),
            ranks,
            Cell(collective, size),
            float(entry["at_most"]),
            float(entry.get("plus_us", 0.0)),
            float(entry["until_then"]) if "until_then" in entry else None,
        )
        for ranks in as_list(entry["ranks"])
        for collective in as_list(entry["collective"])
        for size in wanted
    ]


def load_bounds(path: Path, sizes: Sequence[int]) -> list[Bound]:
    """Loads all bounds of the file. `sizes` replaces the size "every"."""
    return [bound for entry in json.loads(path.read_text()) for bound in expand(entry, sizes)]


def cells_needed(bounds: Sequence[Bound]) -> dict[int, dict[str, list[Cell]]]:
    """Returns the cells that these bounds need, by ranks and contestant."""
    needed: dict[int, dict[str, list[Cell]]] = {}
    for bound in bounds:
        by_name = needed.setdefault(bound.ranks, {})
        for name in (bound.contestant, *bound.against):
            cells = by_name.setdefault(name, [])
            if bound.cell not in cells:
                cells.append(bound.cell)
    return needed


def check(bounds: Sequence[Bound], results: Results) -> list[Verdict]:
    """Compares every bound with the results."""
    verdicts = []
    for bound in bounds:
        found = ratio_of(results, bound.contestant, bound.against, bound.ranks, bound.cell)
        best = results.fastest(bound.against, bound.ranks, bound.cell)
        verdicts.append(Verdict(bound, *found, best[0]) if found else Verdict(bound, None))
    return verdicts
