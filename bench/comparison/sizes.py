"""Sizes, collectives, and the cells that a comparison is made of."""

from __future__ import annotations

import re
from collections.abc import Sequence

from peers.cells import Cell

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "reduce",
    "gather",
    "scatter",
    "sendrecv",
    "barrier",
)


def parse_size(text: str) -> int:
    """Bytes of `8`, `64K`, `1MiB`, `256 MB`; the units are powers of 1024."""
    found = re.fullmatch(r"\s*(\d+)\s*([KMG]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if found is None:
        raise ValueError(f"'{text}' is not a size such as 8, 64K or 16MiB")
    return int(found[1]) * UNITS[found[2].upper()]


def show_size(size: int) -> str:
    """The shortest exact text: `8 B`, `64 KiB`."""
    for unit in ("G", "M", "K"):
        if size and size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]} {unit}iB"
    return f"{size} B"


QUICK_SIZES = tuple(parse_size(text) for text in ("8", "64K", "1M", "16M", "64M"))
FULL_SIZES = tuple(
    parse_size(text)
    for text in ("8", "128", "1K", "8K", "64K", "256K", "1M", "4M", "16M", "64M", "256M")
)


def cells_of(collectives: Sequence[str], sizes: Sequence[int]) -> list[Cell]:
    """Every collective at every size; a barrier has none."""
    return [
        Cell(collective, size)
        for collective in collectives
        for size in ([0] if collective == "barrier" else sizes)
    ]
