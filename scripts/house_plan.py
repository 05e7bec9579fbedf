"""Where the boxes of docs/house.svg lie, and which arrows it needs.

Boxes fall like bricks: each takes its columns, and comes to lie on whatever it includes and on
whatever is in its way there. So a new folder or a new include may make the house less pretty, but
boxes never overlap and arrows never point up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Arrow = tuple[str, str]


@dataclass(frozen=True)
class Box:
    """A rectangle; y grows downwards."""

    left: int
    top: int
    right: int
    bottom: int

    def moved(self, across: int, down: int) -> Box:
        """The same rectangle elsewhere."""
        return Box(self.left + across, self.top + down, self.right + across, self.bottom + down)

    def beside(self, other: Box) -> bool:
        """Whether some x lies in both."""
        return self.left < other.right and other.left < self.right


def without_implied(arrows: Iterable[Arrow]) -> set[Arrow]:
    """The arrows that no chain of other arrows stands for. There must be no circle."""
    given = set(arrows)
    onwards: dict[str, set[str]] = {}
    for source, target in given:
        onwards.setdefault(source, set()).add(target)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(onwards.get(start, ()))
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(onwards.get(name, ()))
        return seen

    far = {name: reached(name) for name in onwards}
    return {
        (source, target)
        for source, target in given
        if not any(target in far.get(other, ()) for other in onwards[source])
    }


def rows_of(
    names: list[str], arrows: set[Arrow], columns: dict[str, Box]
) -> dict[str, tuple[int, int]]:
    """The lowest and the highest row of each box, counted from the ground.

    `names` are in order: a name has arrows only to those before it.
    """
    low: dict[str, int] = {}
    for name in names:
        under = [
            row
            for other, row in low.items()
            if (name, other) in arrows or columns[name].beside(columns[other])
        ]
        low[name] = 1 + max(under, default=-1)
    roof = max(low.values(), default=0)

    def in_the_way(name: str) -> list[str]:
        return [other for other in names if other != name and columns[name].beside(columns[other])]

    included = {target for _, target in arrows}
    for name in reversed(names):
        if name not in included and all(low[other] < low[name] for other in in_the_way(name)):
            low[name] = roof  # What nobody includes is the house's face.
    rows = {}
    for name in names:
        above = [low[source] for source, target in arrows if target == name]
        above += [low[other] for other in in_the_way(name) if low[other] > low[name]]
        # A box reaches up to what stands on it.
        rows[name] = (low[name], max(low[name], min(above) - 1) if above else low[name])
    return rows


def stack(
    names: list[str],
    arrows: set[Arrow],
    columns: dict[str, Box],
    heights: dict[str, int],
    gap: int,
    reach_up: bool = True,
) -> dict[str, Box]:
    """The boxes; the highest begins at 0. Of `columns` only left and right count.

    Where boxes do not reach up to what stands on them, all gaps between rows are free.
    """
    rows = rows_of(names, arrows, columns)
    if not reach_up:
        rows = {name: (low, low) for name, (low, _) in rows.items()}
    count = 1 + max((high for _, high in rows.values()), default=-1)
    row_heights = [0] * count
    # Those of one row first, so that a box of several rows stretches only what is still too low.
    for name in sorted(names, key=lambda name: rows[name][1] - rows[name][0]):
        low, high = rows[name]
        there = sum(row_heights[low : high + 1]) + gap * (high - low)
        row_heights[high] += max(0, heights[name] - there)
    bottoms = []
    for row in range(count):
        bottoms.append(sum(row_heights[row:]) + gap * (count - 1 - row))
    return {
        name: Box(
            columns[name].left,
            bottoms[high] - row_heights[high],
            columns[name].right,
            bottoms[low],
        )
        for name, (low, high) in rows.items()
    }
