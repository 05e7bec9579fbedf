"""Compares two files that ddp_dummy_train.py --save-stats wrote.

    python examples/benchmark_throughput.py --baseline baseline.json --ddp ddp.json -o compared

Prints the throughput of both sides and writes compared.npz (the arrays). If matplotlib is
installed, it also writes compared.png (every step) and compared_bars.png (the medians). Throughput
is the global batch divided by the median of the steps' seconds, as ddp_dummy_train.py prints it.
Rejects files of different models, global batches or devices, because their ratio would be
meaningless.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

# Two runs are comparable only if these are equal.
COMMON = ("global_batch", "parameters", "image_size", "device", "warmup_steps")
KINDS = {"baseline": "of a single process (--baseline)", "ddp": "of a torchrun job"}


def load(option: str, path: Path) -> dict[str, Any]:
    """Reads the stats file of --baseline or --ddp; exits with a reason if it is invalid."""
    try:
        stats = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: cannot be read as JSON: {error}")
    names = (*COMMON, "step_seconds", "world_size", "kind")
    missing = [name for name in names if name not in stats]
    if missing or not stats["step_seconds"]:
        sys.exit(f"{path}: not written by ddp_dummy_train.py --save-stats: no {missing or 'steps'}")
    if stats["kind"] != option:
        found = KINDS.get(stats["kind"], f"of kind {stats['kind']!r}")
        sys.exit(
            f"--{option} {path}: expected the stats {KINDS[option]}; these are {found}. "
            "Are the two files swapped?"
        )
    return stats


def check_comparable(baseline: dict[str, Any], ddp: dict[str, Any]) -> None:
    """Exits if the two runs used different settings."""
    differing = [name for name in COMMON if baseline[name] != ddp[name]]
    if differing:
        found = ", ".join(f"{name} {baseline[name]} and {ddp[name]}" for name in differing)
        sys.exit(f"the two runs differ: {found}; run both with the same settings")


def check_folder(prefix: Path) -> None:
    """Exits if no file whose name begins with `prefix` can be written."""
    folder = prefix.parent
    if prefix.name in ("", "..") or prefix.is_dir():
        sys.exit(f"--output {prefix}: expected a prefix of file names; add one, such as compared")
    if not folder.is_dir():
        sys.exit(f"--output {prefix}: the folder {folder} does not exist; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        sys.exit(f"--output {prefix}: the folder {folder} cannot be written to")


def label_of(stats: dict[str, Any]) -> str:
    """A short name for the legend."""
    if stats["kind"] == "baseline":
        return "1 process"
    ranks = stats["world_size"]
    return f"{ranks} rank{'' if ranks == 1 else 's'}, {stats['backend']}"


def median_throughput(stats: dict[str, Any]) -> float:
    """Samples per second of the median step, as ddp_dummy_train.py prints it."""
    return stats["global_batch"] / statistics.median(stats["step_seconds"])


def title_of(baseline: dict[str, Any], ddp: dict[str, Any]) -> str:
    """The title of a plot: the work, the machine and the result."""
    machines = list(dict.fromkeys(s.get("machine", "unknown machine") for s in (baseline, ddp)))
    ratio = median_throughput(ddp) / median_throughput(baseline)
    return (
        f"{baseline['parameters'] / 1e6:.1f} M parameters, global batch "
        f"{baseline['global_batch']}, {baseline['device']}\n"
        f"{' and '.join(machines)}; {label_of(ddp)} : 1 process = {ratio:.2f}"
    )


def draw_steps(sides: list[dict[str, Any]], target: Path) -> None:
    """Plots samples per second, step by step."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for stats in sides:
        throughput = stats["global_batch"] / np.array(stats["step_seconds"])
        steps = np.arange(1, len(throughput) + 1)
        line = axes.plot(steps, throughput, label=label_of(stats), linewidth=0.8, alpha=0.7)[0]
        axes.axhline(median_throughput(stats), color=line.get_color(), linestyle="--", linewidth=1)
    axes.set(xlabel="step (dashed: median)", ylabel="samples per second", title=title_of(*sides))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(target, dpi=120)
    plt.close(figure)


def draw_bars(sides: list[dict[str, Any]], target: Path) -> None:
    """Plots the medians, with the middle half of the steps as whiskers."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
    medians = np.array([median_throughput(stats) for stats in sides])
    quartiles = np.array(
        [s["global_batch"] / np.percentile(s["step_seconds"], [75, 25]) for s in sides]
    )
    spread = np.abs(quartiles.T - medians)
    labels = [label_of(stats) for stats in sides]
    bars = axes.bar(labels, medians, yerr=spread, capsize=6, color=["C0", "C1"])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set(ylabel="samples per second (median)", title=title_of(*sides))
    axes.title.set_fontsize("medium")
    axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.margins(y=0.15)
    figure.savefig(target, dpi=120)
    plt.close(figure)


def main() -> int:
    """Runs what the command line requests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baseline", type=Path, required=True, help="stats of one process")
    parser.add_argument("--ddp", type=Path, required=True, help="stats of a torchrun job")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("benchmark"), help="prefix of the output files"
    )
    arguments = parser.parse_args()

    prefix: Path = arguments.output
    check_folder(prefix)
    baseline, ddp = load("baseline", arguments.baseline), load("ddp", arguments.ddp)
    check_comparable(baseline, ddp)
    sides = [baseline, ddp]

    for stats in sides:
        print(f"{label_of(stats):24} {median_throughput(stats):10.2f} samples/s (median)")
    print(f"{'ratio':24} {median_throughput(ddp) / median_throughput(baseline):10.2f}")

    arrays, steps, bars = (
        prefix.with_name(prefix.name + end) for end in (".npz", ".png", "_bars.png")
    )
    np.savez(
        arrays,
        baseline_step_seconds=np.array(baseline["step_seconds"]),
        ddp_step_seconds=np.array(ddp["step_seconds"]),
        global_batch=baseline["global_batch"],
        world_size=ddp["world_size"],
        parameters=baseline["parameters"],
    )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print(f"wrote {arrays}; for the plots too: pip install matplotlib")
        return 0
    draw_steps(sides, steps)
    draw_bars(sides, bars)
    print(f"wrote {arrays}, {steps}, {bars}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
