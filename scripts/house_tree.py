"""What docs/house.svg shows: how large layers are, and how many files of one include another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from house_plan import Arrow
from layers import LAYERS, folders_outside_the_layers, includes, sources, wrong_includes

ENGINE = "src/engine"


class TreeError(Exception):
    """The tree does not keep its layers, so it cannot be drawn as a house."""


@dataclass(frozen=True)
class Size:
    """How much a box holds."""

    files: int
    lines: int

    def __add__(self, other: Size) -> Size:
        return Size(self.files + other.files, self.lines + other.lines)

    def __str__(self) -> str:
        # In hundreds, so that not every commit changes the drawing.
        lines = max(100, round(self.lines, -2))
        return f"{self.files} file{'s' if self.files != 1 else ''} · {lines:,} lines"


@dataclass(frozen=True)
class Tree:
    """The layers that have files, in order, and how many files of one include another.

    `outer` takes the engine as one layer; `inner` is between its folders and its own files.
    """

    sizes: dict[str, Size]
    outer: Counter[Arrow]
    inner: Counter[Arrow]

    @property
    def floors(self) -> list[str]:
        """The layers with the engine as one."""
        return list(dict.fromkeys(floor_of(layer) for layer in self.sizes))

    def size_of_floor(self, floor: str) -> Size:
        """All that a layer holds, with the engine as one."""
        sizes = (size for layer, size in self.sizes.items() if floor_of(layer) == floor)
        return sum(sizes, Size(0, 0))

    @property
    def rooms(self) -> list[str]:
        """The engine's folders, and the engine for its own files."""
        return [layer for layer in self.sizes if floor_of(layer) == ENGINE]


def floor_of(layer: str) -> str:
    """The layer, or the engine for a folder of it."""
    return ENGINE if layer.startswith(ENGINE + "/") else layer


def read_tree(root: Path) -> Tree:
    """Counts what lies under `root`; TreeError where the layers are not kept."""
    wrong = wrong_includes(root) + [
        f"{folder} is in no layer: add it to HOLDS in scripts/layers.py"
        for folder in folders_outside_the_layers(root)
    ]
    if wrong:
        raise TreeError("\n".join(wrong))
    sizes = {layer: Size(0, 0) for layer in LAYERS}
    for layer, path in sources(root):
        sizes[layer] += Size(1, len(path.read_text().splitlines()))
    if not any(size.files for size in sizes.values()):
        raise TreeError(f"{root} has none of the folders that scripts/layers.py lists")
    outer, inner = set(), set()
    for each in includes(root):
        floors = floor_of(each.layer), floor_of(each.target)
        if floors[0] != floors[1]:
            outer.add((each.path, *floors))
        elif each.layer != each.target:
            inner.add((each.path, each.layer, each.target))
    return Tree(
        {layer: size for layer, size in sizes.items() if size.files},
        Counter((layer, target) for _, layer, target in outer),
        Counter((layer, target) for _, layer, target in inner),
    )
