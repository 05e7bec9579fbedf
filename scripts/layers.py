"""Finds the layers of the source tree, and which of them a file includes.

tests/python/test_layers.py uses it to check the tree and docs/architecture.md. As a program it
prints a Mermaid diagram of the layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# A layer may include itself and the layers before it. Each folder of src/rendezvous and src/engine
# is a layer. Files directly in src/engine form a layer after its folders.
LAYERS = (
    "include/mccl",
    "src/base",
    "src/device",
    "src/kernels",
    "src/schedule",
    "src/node",
    "src/transport",
    "src/rendezvous/connections",
    "src/rendezvous/store",
    "src/rendezvous/cabling",
    "src/rendezvous/meeting",
    "src/engine/calls",
    "src/engine/driving",
    "src/engine/peers",
    "src/engine/links",
    "src/engine/collectives",
    "src/engine/messages",
    "src/engine/groups",
    "src/engine",
    "src/backend",
    "src/c_api",
    "src/cluster",
    "src/cli",
    "bindings",
)
CXX = {".c", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".mm", ".metal"}
INCLUDE = re.compile(r'^\s*#\s*(?:include|import)\s*[<"]([^>"]+)[>"]', re.MULTILINE)


@dataclass(frozen=True)
class Include:
    """A line of a file that includes another file of the project."""

    path: Path
    layer: str
    name: str
    target: str

    @property
    def goes_the_wrong_way(self) -> bool:
        """True if a layer includes a later one."""
        return LAYERS.index(self.target) > LAYERS.index(self.layer)


def layer_of(relative: Path) -> str | None:
    """Returns the innermost layer that contains a path of the tree, or None."""
    return next((str(folder) for folder in relative.parents if str(folder) in LAYERS), None)


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Yields every C++ file of the layers, layer by layer."""
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix in CXX and layer_of(path.relative_to(root)) == layer:
                yield layer, path


def layer_of_include(name: str, including: Path, root: Path) -> str | None:
    """Returns the layer that an include names, or None for a library outside the project."""
    beside = including.parent / name
    for candidate in (beside, root / "include" / name, root / "src" / name, root / name):
        if candidate.is_file():
            return layer_of(candidate.resolve().relative_to(root.resolve()))
    return None


def includes(root: Path) -> Iterator[Include]:
    """Yields every include of one file of the layers by another."""
    for layer, path in sources(root):
        for name in INCLUDE.findall(path.read_text()):
            target = layer_of_include(name, path, root)
            if target is not None:
                yield Include(path, layer, name, target)


def wrong_includes(root: Path) -> list[str]:
    """Lists includes that violate the order of layers."""
    return [
        f"{each.path.relative_to(root)} includes {each.name} of the later {each.target}"
        for each in includes(root)
        if each.goes_the_wrong_way
    ]


def folders_outside_the_layers(root: Path) -> list[str]:
    """Lists folders with C++ files, in src and in folders of layers, that are not layers."""
    divided = {str(Path(layer).parent) for layer in LAYERS if layer.count("/") == 2}
    found = []
    for place in ("src", *sorted(divided)):
        for folder in sorted((root / place).glob("*")):
            name = str(folder.relative_to(root))
            files = folder.glob("*") if name in divided else folder.rglob("*")
            if name not in LAYERS and any(path.suffix in CXX for path in files):
                found.append(name)
    return found


def arrows(root: Path) -> list[tuple[str, str]]:
    """Lists pairs (layer, included layer), without pairs that follow from others."""
    found = {(each.layer, each.target) for each in includes(root) if each.layer != each.target}
    reached: dict[str, set[str]] = {}
    for layer in LAYERS:  # A layer includes only layers before it.
        targets = {target for source, target in found if source == layer}
        reached[layer] = targets.union(*(reached.get(target, ()) for target in targets))
    return [
        (source, target)
        for source in LAYERS
        for target in LAYERS
        if (source, target) in found
        and not any(target in reached[other] for other in LAYERS if (source, other) in found)
    ]


def diagram(root: Path) -> str:
    """Returns the arrows as a Mermaid diagram."""
    lines = [f"    {source} --> {target}\n" for source, target in arrows(root)]
    return "```mermaid\nflowchart TD\n" + "".join(lines) + "```\n"


if __name__ == "__main__":
    print(diagram(Path(__file__).resolve().parent.parent), end="")
