"""Plots times against sizes."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from comparison.machine import PASS
from comparison.results import Results
from comparison.sizes import show_size
from comparison.table import title_of
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from peers.cells import Cell

STYLES = {
    "mccl": ("tab:red", "-"),
    "mccl-torch": ("tab:red", "--"),
    "mccl-numpy": ("tab:red", "-."),
    "mccl-tcp": ("tab:red", ":"),
    "gloo": ("tab:blue", "--"),
    "openmpi": ("tab:green", "-"),
    "mccl-mpi": ("tab:olive", "-"),
    "openmpi-tcp": ("tab:green", ":"),
    "mpich": ("tab:purple", "-"),
    "mlx": ("tab:orange", "--"),
    "mccl-mlx": ("tab:orange", "-"),
    PASS: ("tab:gray", ":"),
}
COLUMNS = 3


def draw(axes: Axes, results: Results, ranks: int, collective: str, sizes: list[int]) -> None:
    """Draws one collective, with a line per contestant."""
    for name, (color, style) in STYLES.items():
        timed = [(size, results.time_us(name, ranks, Cell(collective, size))) for size in sizes]
        points = [(size, time) for size, time in timed if time is not None]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                style,
                color=color,
                marker=".",
                label=title_of(name),
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [show_size(size).replace("iB", "") for size in sizes], fontsize=7)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.set_title(collective)


def plot(results: Results, folder: Path) -> list[Path]:
    """Draws one picture per number of ranks. Returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for ranks in results.ranks():
        drawn = {
            collective: sizes
            for collective, sizes in results.cells(ranks).items()
            if len(sizes) > 1 and sizes[0] > 0
        }
        if not drawn:
            continue
        height = -(-len(drawn) // COLUMNS)
        width = min(COLUMNS, len(drawn))
        figure, grid = plt.subplots(
            height, width, figsize=(4.6 * width, 3.4 * height + 0.9), squeeze=False
        )
        for axes, (collective, sizes) in zip(grid.flat, drawn.items(), strict=False):
            draw(axes, results, ranks, collective, sizes)
        for axes in grid.flat[len(drawn) :]:
            axes.set_visible(False)
        for row in grid:
            row[0].set_ylabel("microseconds per call")
        handles = {
            label: handle
            for axes in grid.flat
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=2 * width)
        figure.suptitle(f"{ranks} ranks on one machine: median time of a call (lower is better)")
        figure.tight_layout(rect=(0, 0.9 / (3.4 * height + 0.9), 1, 1))
        path = folder / f"times-{ranks}-ranks.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        files.append(path)
    return files
