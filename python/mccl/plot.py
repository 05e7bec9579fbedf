"""Draws results of ``mccl bench``: ``mccl bench --plot FILE`` runs this module.

Needs matplotlib (``pip install 'mccl-engine[plot]'``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

#: The figures of a row that are drawn, with their labels.
FIGURES = {"busbw": "bus bandwidth, GB/s", "time_us": "time of a call, us"}

#: For each collective, maps (key of FIGURES, label of the result) to the points that are drawn:
#: (size in bytes, value of the figure).
Lines = dict[str, dict[tuple[str, str], list[tuple[int, float]]]]


def size_text(size: int) -> str:
    """Returns the size in bytes with a binary unit, such as "64K"."""
    for unit in ("", "K", "M"):
        if size < 1024:
            return f"{size:g}{unit}"
        size /= 1024
    return f"{size:g}G"


def lines_of(results: list[tuple[str, dict[str, Any]]]) -> Lines:
    """Collects the rows of several results, without calls that have no size, such as a barrier.

    Raises:
        ValueError: A result was not written by ``mccl bench --json``.
    """
    lines: Lines = defaultdict(lambda: defaultdict(list))
    for name, result in results:
        try:
            for row in result["rows"]:
                if row["bytes"] <= 0:
                    continue
                label = f"{name}, in place" if row["in_place"] else name
                for figure in FIGURES:
                    point = (int(row["bytes"]), float(row[figure]))
                    lines[row["collective"]][figure, label].append(point)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{name} is not a result of `mccl bench --json`: {error!r}") from error
    return lines


def draw(axes: Axes, figure: str, points: dict[str, list[tuple[int, float]]]) -> None:
    """Draws one figure against the size, with a line for each result."""
    for label, line in points.items():
        axes.plot(*zip(*sorted(line), strict=True), marker=".", label=label)
    sizes = sorted({size for line in points.values() for size, _ in line})
    shown = sizes[:: -(-len(sizes) // 12)]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(shown, [size_text(size) for size in shown], fontsize=8)
    axes.set_ylabel(FIGURES[figure])
    axes.grid(alpha=0.3)


def plot(lines: Lines, title: str, file: Path) -> None:
    """Writes a picture with a row for each call; the extension of `file` selects the format."""
    figure, grid = plt.subplots(
        len(lines), len(FIGURES), figsize=(11, 3.6 * len(lines)), squeeze=False
    )
    for row, (call, points) in zip(grid, lines.items(), strict=True):
        for axes, name in zip(row, FIGURES, strict=True):
            draw(
                axes,
                name,
                {label: line for (drawn, label), line in points.items() if drawn == name},
            )
            axes.set_title(call)
        row[0].legend(fontsize=8)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(file)


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="mccl bench --plot")
    parser.add_argument("picture", type=Path, help="file to write: .svg, .png or .pdf")
    parser.add_argument("results", type=Path, nargs="+", help="files of `mccl bench --json`")
    arguments = parser.parse_args()
    try:
        files = arguments.results
        stems = [file.stem for file in files]
        labels = [str(f) if stems.count(f.stem) > 1 else f.stem for f in files]
        results = [(n, json.loads(f.read_text())) for n, f in zip(labels, files, strict=True)]
        lines = lines_of(results)
        if not lines:
            raise ValueError("the results have no row with a size to draw")
        first = results[0][1]
        plot(lines, f"mccl {first['version']}, {first['ranks']} ranks", arguments.picture)
    except (OSError, ValueError, KeyError) as error:
        print(f"mccl bench --plot: {error}", file=sys.stderr)
        return 2
    print(f"wrote {arguments.picture}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
