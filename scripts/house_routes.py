"""The ways of the arrows of docs/house.svg: between boxes, downwards, and beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from house_plan import Arrow, Box

Point = tuple[int, int]

INSET = 18  # how far from a box's corners arrows begin and end
CLEARANCE = 6  # between an arrow and the side of a box that it passes
SPACING = 30  # between arrows beside each other: room for a number
STEP = 4  # between the places that are tried for an arrow
BEND = 22  # above a row of boxes: where arrows turn; under it is room for a number
NEXT_BEND = 5  # to where those of another box turn
TURN = 40  # how much longer a way may be that spares a turn


@dataclass(frozen=True)
class Route:
    """The way of one arrow, through its corners."""

    points: tuple[Point, ...]

    def moved(self, across: int, down: int) -> Route:
        """The same way elsewhere."""
        return Route(tuple((x + across, y + down) for x, y in self.points))

    def uprights(self) -> Iterator[tuple[int, int, int]]:
        """The x, the upper and the lower end of each piece that goes down."""
        for (x, upper), (other, lower) in zip(self.points, self.points[1:], strict=False):
            if x == other:
                yield x, upper, lower

    def without_idle_points(self) -> Route:
        """The same way with nothing but corners."""
        kept = list(self.points[:1])
        for point, after in zip(self.points[1:], self.points[2:], strict=False):
            before = kept[-1]
            in_line = before[0] == point[0] == after[0] or before[1] == point[1] == after[1]
            if point != before and not in_line:
                kept.append(point)
        return Route((*kept, self.points[-1]))


@dataclass(frozen=True)
class Way:
    """A way as far as it is known, and how long it is."""

    length: int
    points: tuple[Point, ...]

    def on_to(self, point: Point) -> Way:
        """The way with one more piece."""
        return Way(self.length, (*self.points, point))


class Router:
    """Finds ways for arrows around boxes, each beside those found before."""

    def __init__(self, boxes: dict[str, Box], left: int, right: int) -> None:
        self._boxes = boxes
        self._lanes = range(left // STEP * STEP, right + 1, STEP)
        self._found: dict[Arrow, Route] = {}

    def routes(self, arrows: Iterable[Arrow]) -> dict[Arrow, Route] | None:
        """A way for each arrow, straight where one is; None if there is none for some."""
        arrows = sorted(arrows)
        for arrow in arrows:
            if (route := self._straight(*arrow)) is not None:
                self._found[arrow] = route
        for arrow in arrows:
            if arrow not in self._found:
                route = self._bent(*arrow, crowded=False) or self._bent(*arrow, crowded=True)
                if route is None:
                    return None
                self._found[arrow] = route
        return dict(sorted(self._found.items()))

    def _places(self, box: Box) -> list[int]:
        """Where arrows of a box may begin or end."""
        return [lane for lane in self._lanes if box.left + INSET <= lane <= box.right - INSET]

    def _clear(self, x: int, upper: int, lower: int) -> bool:
        """Whether a line may go down there without touching a box."""
        return not any(
            box.top < lower
            and upper < box.bottom
            and box.left - CLEARANCE < x < box.right + CLEARANCE
            for box in self._boxes.values()
        )

    def _alone(self, x: int, upper: int, lower: int, source: str) -> bool:
        """Whether no arrow of another source goes down beside it."""
        return not any(
            abs(x - other) < SPACING and top < lower and upper < bottom
            for arrow, route in self._found.items()
            if arrow[0] != source
            for other, top, bottom in route.uprights()
        )

    def _straight(self, source: str, target: str) -> Route | None:
        start, end = self._boxes[source], self._boxes[target]
        free = [
            x
            for x in self._places(start)
            if end.left + INSET <= x <= end.right - INSET
            and self._clear(x, start.bottom, end.top)
            and self._alone(x, start.bottom, end.top, source)
        ]
        if not free:
            return None
        x = free[len(free) // 2]
        return Route(((x, start.bottom), (x, end.top)))

    def _bent(self, source: str, target: str, crowded: bool) -> Route | None:
        """The shortest way that turns in gaps only; in a crowd, other arrows may be close."""
        start, end = self._boxes[source], self._boxes[target]
        shift = NEXT_BEND * (self._bends_of_others(source) % 2)
        tops = {box.top for box in self._boxes.values() if start.bottom < box.top <= end.top}
        gaps = [top - BEND - shift for top in sorted(tops)]

        def downwards(ways: dict[int, Way], upper: int, lower: int) -> dict[int, Way]:
            return {
                x: way.on_to((x, lower))
                for x, way in ways.items()
                if self._clear(x, upper, lower)
                and (crowded or self._alone(x, upper, lower, source))
            }

        ways = self._beginnings(source)
        upper = start.bottom
        for gap in gaps:
            ways = self._sideways(downwards(ways, upper, gap), gap)
            upper = gap
        ends = set(self._places(end))
        ways = downwards({x: way for x, way in ways.items() if x in ends}, upper, end.top)
        middle = (end.left + end.right) // 2
        if not ways:
            return None
        best = min(ways, key=lambda x: (ways[x].length + 2 * abs(x - middle), x))
        return Route(ways[best].points).without_idle_points()

    def _beginnings(self, source: str) -> dict[int, Way]:
        """Where an arrow may leave its box: if it can, where another has left."""
        box = self._boxes[source]
        used = {route.points[0][0] for arrow, route in self._found.items() if arrow[0] == source}
        return {
            x: Way(0 if x in used or not used else 10 * TURN, ((x, box.bottom),))
            for x in self._places(box)
        }

    def _sideways(self, ways: dict[int, Way], gap: int) -> dict[int, Way]:
        """The shortest ways to every lane of a gap, from the lanes that are reached."""
        best = dict(ways)
        for lanes in (self._lanes, reversed(self._lanes)):
            carried: Way | None = None  # Its length has the turns, and the way so far.
            for x in lanes:
                if not self._clear(x, gap, gap):
                    carried = None
                    continue
                if carried is not None:
                    carried = Way(carried.length + STEP, carried.points)
                    if x not in best or carried.length < best[x].length:
                        best[x] = carried.on_to((x, gap))
                own = ways.get(x)
                if own and (carried is None or own.length + 2 * TURN < carried.length):
                    carried = Way(own.length + 2 * TURN, own.points)
        return best

    def _bends_of_others(self, source: str) -> int:
        """How many other boxes have arrows with bends."""
        return len(
            {
                arrow[0]
                for arrow, route in self._found.items()
                if len(route.points) > 2 and arrow[0] != source
            }
        )
