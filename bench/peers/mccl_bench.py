"""Times MCCL through C++: runs `mccl bench`, and reports the results as the other peers do.

    python mccl_bench.py --program build/release/mccl --ranks 2 --transport auto all_reduce:8 …

`mccl bench` reports several rows per size. For collectives that the other peers run in place, this
program uses the in-place row.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cells import Cell, emit

BOUNDS_WITH = "all_reduce"  # The machine's limits are measured once per launch.
IN_PLACE = ("all_reduce", "broadcast", "reduce")


def pick_row(rows: list[dict[str, Any]], cell: Cell, ranks: int) -> dict[str, Any] | None:
    """Returns the cell's row. A size without equal parts for the ranks was rounded up."""
    sizes = (cell.bytes, cell.elements(ranks) * 4, 0 if cell.collective == "barrier" else -1)
    fitting = [
        row
        for row in rows
        if row["collective"] == cell.collective and row["bytes"] in sizes and "time_us" in row
    ]
    wanted = cell.collective in IN_PLACE
    preferred = [row for row in fitting if bool(row.get("in_place")) == wanted]
    return (preferred or fitting or [None])[0]


def command(arguments: argparse.Namespace, cells: Sequence[Cell], result: Path) -> list[str]:
    """Returns the command that measures these cells, all of one collective."""
    return [
        *shlex.split(arguments.under),
        *(str(arguments.program), "bench", cells[0].collective),
        # A launcher sets the number of ranks itself.
        *([] if arguments.under else ["--ranks", str(arguments.ranks)]),
        *([] if arguments.under else ["--transport", arguments.transport]),
        # A barrier has no size, but the option needs one.
        *("--sizes", ",".join(str(cell.bytes or 8) for cell in cells)),
        *("--seconds", str(arguments.seconds), "--no-check", "--json", str(result)),
        *(["--no-bounds"] if arguments.under or cells[0].collective != BOUNDS_WITH else []),
    ]


def measure(arguments: argparse.Namespace, cells: Sequence[Cell], folder: Path) -> None:
    """Runs the cells of one collective."""
    # One "begin" line stands for all cells, since the program reports them together.
    emit({"begin": str(cells[0]), "cells": len(cells)})
    result = folder / f"{cells[0].collective}.json"
    done = subprocess.run(
        command(arguments, cells, result), capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or not result.exists():
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        for cell in cells:
            emit({**cell._asdict(), "absent": f"`mccl bench` ended with {done.returncode}: {said}"})
        return
    report = json.loads(result.read_text())
    for cell in cells:
        row = pick_row(report["rows"], cell, arguments.ranks)
        if row is None:
            emit({**cell._asdict(), "absent": "`mccl bench` reported no row"})
        else:
            figures = {name: row[name] for name in ("time_us", "p50_us", "p99_us") if name in row}
            emit({**cell._asdict(), "calls": row.get("iterations", 0), **figures})
    if report.get("bounds"):
        emit({"bounds": report["bounds"]})


def main() -> int:
    """Runs the cells of every collective."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--under", default="", help="command of a launcher that starts the ranks")
    parser.add_argument("--seconds", type=float, default=0.2, help="duration of a cell")
    parser.add_argument("cells", nargs="+", type=Cell.parse, metavar="COLLECTIVE:BYTES")
    arguments = parser.parse_args()
    collectives: dict[str, list[Cell]] = {}
    for cell in arguments.cells:
        collectives.setdefault(cell.collective, []).append(cell)
    with tempfile.TemporaryDirectory() as folder:
        for cells in collectives.values():
            measure(arguments, cells, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
