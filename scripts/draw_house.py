#!/usr/bin/env python3
"""Draws docs/house.svg: the layers of the source tree, and which stands on which.

draw_house.py            writes the drawing
draw_house.py --check    fails when the drawing is not what it would write
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from house_plan import Arrow, Box, stack, without_implied
from house_routes import Router
from house_svg import LARGE, MEDIUM, PADDING, Words, document, draw_arrow, draw_box, text_at, wrap
from house_tree import ENGINE, Tree, TreeError, read_tree
from layers import HOLDS

ROOT = Path(__file__).resolve().parent.parent
DRAWING = "docs/house.svg"
WIDTH = 880
MARGIN = 16
LANE = 10  # beside all boxes, for arrows that find no other way
BETWEEN = 10  # boxes of one row
HEAD = 36  # the engine's name
GAP = 40  # between rows
ROOM_GAP = 30  # between rows of rooms

# Between which columns a layer's box stands; who is not here takes the whole width. A room's
# columns are those of the engine's box.
COLUMNS_IN_ALL = 48
COLUMNS = {
    "src/base": (0, 20),
    "src/kernels": (20, 44),
    "src/schedule": (20, 44),
    "src/node": (0, 20),
    "src/transport": (0, 20),
    "src/rendezvous": (0, 20),
    "src/engine": (4, 37),
    "bindings": (0, 13),
    "src/backend": (13, 27),
    "src/cluster": (13, 40),
    "src/cli": (27, 40),
    "src/c_api": (40, 48),
}
ROOM_COLUMNS = {
    "src/engine/calls": (0, 32),
    "src/engine/driving": (32, 48),
    "src/engine/peers": (0, 32),
    "src/engine/links": (0, 32),
    "src/engine/collectives": (0, 16),
    "src/engine/messages": (16, 32),
    "src/engine/groups": (0, 32),
}
LEGEND = (
    "Arrows: who includes whom, with the number of files that do; what follows from other arrows "
    "is left out. C++ only; lines in hundreds."
)


def in_columns(
    names: list[str], columns: dict[str, tuple[int, int]], left: int, right: int
) -> dict[str, Box]:
    """Left and right of each box, between `left` and `right`."""
    each = (right - left + BETWEEN) / COLUMNS_IN_ALL
    placed = {}
    for name in names:
        first, end = columns.get(name, (0, COLUMNS_IN_ALL))
        placed[name] = Box(left + round(first * each), 0, left + round(end * each) - BETWEEN, 0)
    return placed


def title_of(name: str, arrows: Counter[Arrow]) -> str:
    """All that a layer includes, with what the drawing leaves out."""
    included = [f"{target} ({arrows[name, target]})" for target in HOLDS if arrows[name, target]]
    return f"{name} includes {', '.join(included) or 'no other layer'}"


def title_of_arrow(arrow: Arrow, files: int) -> str:
    """What an arrow says."""
    verb = "files include" if files != 1 else "file includes"
    return f"{arrow[0]}: {files} {verb} {arrow[1]}"


class Storey:
    """Boxes of one drawing with their arrows: the house, or the rooms of the engine."""

    def __init__(
        self,
        words: dict[str, Words],
        arrows: Counter[Arrow],
        places: dict[str, Box],
        gap: int,
        heights: dict[str, int],
    ) -> None:
        self.words = words
        self._arrows = arrows
        needed = heights | {
            name: words[name].height(places[name].right - places[name].left)
            for name in words
            if name not in heights
        }
        left = min(box.left for box in places.values()) - LANE
        right = max(box.right for box in places.values()) + LANE
        for reach_up in (True, False):
            self.boxes = stack(list(words), set(arrows), places, needed, gap, reach_up)
            self._routes = Router(self.boxes, left, right).routes(without_implied(arrows))
            if self._routes is not None:
                break
        self.height = max(box.bottom for box in self.boxes.values())

    def move(self, down: int) -> None:
        """Moves everything down."""
        self.boxes = {name: box.moved(0, down) for name, box in self.boxes.items()}
        self._routes = {arrow: route.moved(0, down) for arrow, route in self._routes.items()}

    def draw_arrows(self) -> list[str]:
        """The arrows that no others imply."""
        drawn = []
        for arrow, route in self._routes.items():
            files = self._arrows[arrow]
            drawn += draw_arrow(route, files, title_of_arrow(arrow, files))
        return drawn

    def draw_box(self, name: str, kind: str, inside: list[str] | None = None) -> list[str]:
        """One box with its words, or with something else."""
        box = self.boxes[name]
        inside = self.words[name].draw(box) if inside is None else inside
        return draw_box(box, kind, title_of(name, self._arrows), inside)


def rooms_of(tree: Tree, left: int, right: int) -> Storey:
    """The engine's folders, and its own files."""
    words = {
        name: Words(
            name.removeprefix(ENGINE + "/") if name != ENGINE else "the engine's own files",
            HOLDS[name],
            str(tree.sizes[name]),
            MEDIUM,
        )
        for name in tree.rooms
    }
    places = in_columns(tree.rooms, ROOM_COLUMNS, left + PADDING, right - PADDING)
    return Storey(words, tree.inner, places, ROOM_GAP, {})


def kind_of(name: str, arrows: Counter[Arrow]) -> str:
    """How a floor of the house looks."""
    if name == ENGINE:
        return "engine"
    if not any(source == name for source, _ in arrows):
        return "ground"
    return "floor" if any(target == name for _, target in arrows) else "face"


def draw(tree: Tree) -> str:
    """The whole drawing."""
    heights = {}
    places = in_columns(tree.floors, COLUMNS, MARGIN, WIDTH - MARGIN)
    rooms = None
    if ENGINE in places:
        rooms = rooms_of(tree, places[ENGINE].left, places[ENGINE].right)
        heights[ENGINE] = HEAD + rooms.height + PADDING
    words = {
        name: Words(name, HOLDS[name], str(tree.size_of_floor(name)), LARGE) for name in tree.floors
    }
    house = Storey(words, tree.outer, places, GAP, heights)
    house.move(MARGIN)
    drawn = house.draw_arrows()
    for name in tree.floors:
        inside = None
        if name == ENGINE and rooms is not None:
            box = house.boxes[ENGINE]
            rooms.move(box.top + HEAD)
            inside = draw_rooms(rooms, box, str(tree.size_of_floor(ENGINE)))
        drawn += house.draw_box(name, kind_of(name, tree.outer), inside)
    y = MARGIN + house.height
    for line in wrap(LEGEND, WIDTH - 2 * MARGIN, MEDIUM.size):
        y += MEDIUM.line + 2
        drawn.append(text_at(MARGIN, y, "size", MEDIUM.size, line))
    return document(WIDTH, y + MARGIN, "The layers of MCCL, and which stands on which", drawn)


def draw_rooms(rooms: Storey, box: Box, size: str) -> list[str]:
    """What is in the engine's box."""
    drawn = [
        text_at(box.left + PADDING, box.top + 24, "name", LARGE.name, ENGINE),
        text_at(box.right - PADDING, box.top + 24, "size", LARGE.size, size, "end"),
        *rooms.draw_arrows(),
    ]
    for name in rooms.boxes:
        drawn += rooms.draw_box(name, "room")
    return drawn


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree; default: this one")
    options = parser.parse_args(arguments)
    path = options.root / DRAWING
    try:
        drawing = draw(read_tree(options.root))
    except TreeError as error:
        print(f"draw_house.py: {error}", file=sys.stderr)
        return 1
    if not options.check:
        path.write_text(drawing, encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != drawing:
        print(
            f"draw_house.py: {DRAWING} is not what the tree is: run `make house`", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
