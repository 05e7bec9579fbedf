"""The layers of the source tree, and which of them a file includes.

tests/python/test_layers.py checks the tree with this, and scripts/draw_house.py draws it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# A layer includes itself and those before it. A folder of the engine is a layer too; what lies in
# src/engine itself is the last of them.
HOLDS = {
    "include/mccl": "what a C or C++ program includes",
    "src/base": "settings, log, clock, metrics, cores",
    "src/device": "memory that is not the host's, and what moves it",
    "src/kernels": "arithmetic on host memory: reduce, fold, scale, checksum",
    "src/schedule": "algorithms as data, the proof that they are right, what they cost, the choice",
    "src/node": "the memory that ranks of a node share",
    "src/transport": "links of two processes: tcp, shm, rdma",
    "src/rendezvous": "how ranks find and trust each other",
    "src/engine/calls": "what was called, and its Work",
    "src/engine/driving": "who drives, and when to sleep",
    "src/engine/peers": "who is there, and who has gone",
    "src/engine/links": "the ways to a peer",
    "src/engine/collectives": "schedules that run",
    "src/engine/messages": "send and receive",
    "src/engine/groups": "who communicates together",
    "src/engine": "the engine of a process, and its locks",
    "src/backend": "groups, over the engine",
    "src/c_api": "the C interface",
    "src/cluster": "hosts, what joins them, and what is wrong with them",
    "src/cli": "the mccl program",
    "bindings": "PyTorch, MLX, NumPy",
}
LAYERS = tuple(HOLDS)
CXX = {".c", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".mm", ".metal"}
INCLUDE = re.compile(r'^\s*#\s*(?:include|import)\s*[<"]([^>"]+)[>"]', re.MULTILINE)


@dataclass(frozen=True)
class Include:
    """One line of a file that includes another file of the project."""

    path: Path
    layer: str
    name: str
    target: str

    @property
    def goes_the_wrong_way(self) -> bool:
        """Whether a layer includes one that comes after it."""
        return LAYERS.index(self.target) > LAYERS.index(self.layer)


def layer_of(relative: Path) -> str | None:
    """The innermost layer that holds a path of the tree; None where there is none."""
    return next((str(folder) for folder in relative.parents if str(folder) in HOLDS), None)


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Every C++ file of the layers, layer by layer."""
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix in CXX and layer_of(path.relative_to(root)) == layer:
                yield layer, path


def layer_of_include(name: str, including: Path, root: Path) -> str | None:
    """The layer that an include names; None for a library outside the project."""
    beside = including.parent / name
    for candidate in (beside, root / "include" / name, root / "src" / name, root / name):
        if candidate.is_file():
            return layer_of(candidate.resolve().relative_to(root.resolve()))
    return None


def includes(root: Path) -> Iterator[Include]:
    """Every include of one file of the layers by another."""
    for layer, path in sources(root):
        for name in INCLUDE.findall(path.read_text()):
            target = layer_of_include(name, path, root)
            if target is not None:
                yield Include(path, layer, name, target)


def wrong_includes(root: Path) -> list[str]:
    """Includes that go the wrong way."""
    return [
        f"{each.path.relative_to(root)} includes {each.name} of the later {each.target}"
        for each in includes(root)
        if each.goes_the_wrong_way
    ]


def folders_outside_the_layers(root: Path) -> list[str]:
    """Folders with C++ files that lie where layers lie, in src and src/engine, and are none."""
    return [
        str(folder.relative_to(root))
        for place in (root / "src", root / "src/engine")
        for folder in sorted(place.glob("*"))
        if str(folder.relative_to(root)) not in HOLDS
        and any(path.suffix in CXX for path in folder.rglob("*"))
    ]
