"""Defines sizes, collectives, and the cells of a comparison."""

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
    """Parses sizes such as `8`, `64K`, `1MiB` and `256 MB` to bytes; units are powers of 1024."""
    found = re.fullmatch(r"\s*(\d+)\s*([KMG]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if found is None:
        raise ValueError(f"'{text}' is not a size such as 8, 64K or 16MiB")
    return int(found[1]) * UNITS[found[2].upper()]


def show_size(size: int) -> str:
    """Returns the shortest exact text, such as `8 B` or `64 KiB`."""
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
    """Returns every collective at every size. A barrier has no size."""
    return [
        Cell(collective, size)
        for collective in collectives
        for size in ([0] if collective == "barrier" else sizes)
    ]
