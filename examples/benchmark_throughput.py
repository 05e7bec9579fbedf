"""Compares two files that ddp_dummy_train.py --save-stats wrote.

    python examples/benchmark_throughput.py --baseline baseline.json --ddp ddp.json -o compared

Prints the throughput of both sides and writes compared.npz (the arrays), compared.png (every step)
and compared_bars.png (the medians). Files of different models, global batches or devices are
refused: their ratio would mean nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

# Two runs compare only if these are equal.
COMMON = ("global_batch", "parameters", "image_size", "device", "warmup_steps")


def load(path: Path) -> dict[str, Any]:
    """Reads one stats file; exits with a reason when it is none."""
    try:
        stats = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: cannot be read as JSON: {error}")
    missing = [name for name in (*COMMON, "step_seconds", "world_size") if name not in stats]
    if missing or not stats["step_seconds"]:
        sys.exit(f"{path}: not written by ddp_dummy_train.py --save-stats: no {missing or 'steps'}")
    return stats


def check_comparable(baseline: dict[str, Any], ddp: dict[str, Any]) -> None:
    """Exits when the two sides did not do the same work."""
    differing = [name for name in COMMON if baseline[name] != ddp[name]]
    if differing:
        found = ", ".join(f"{name} {baseline[name]} and {ddp[name]}" for name in differing)
        sys.exit(f"the two runs differ: {found}; run both with the same settings")


def label_of(stats: dict[str, Any]) -> str:
    """A short name for a legend."""
    if stats["kind"] == "baseline":
        return "1 process"
    return f"{stats['world_size']} ranks, {stats['backend']}"


def draw_steps(runs: dict[str, np.ndarray], target: Path) -> None:
    """Plots samples per second, step by step."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for label, samples_per_second in runs.items():
        axes.plot(np.arange(1, len(samples_per_second) + 1), samples_per_second, label=label)
    axes.set(xlabel="step", ylabel="samples per second", title="Training throughput")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(target, dpi=120)
    plt.close(figure)


def draw_bars(runs: dict[str, np.ndarray], target: Path) -> None:
    """Plots the medians, with the middle half of the steps as whiskers."""
    figure, axes = plt.subplots(figsize=(5, 4.5), layout="constrained")
    medians = [float(np.median(values)) for values in runs.values()]
    quartiles = [np.percentile(values, [25, 75]) for values in runs.values()]
    spread = np.abs(np.array(quartiles).T - np.array(medians))
    bars = axes.bar(list(runs), medians, yerr=spread, capsize=6, color=["C0", "C1"])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set(ylabel="samples per second (median)", title="Training throughput")
    axes.margins(y=0.15)
    figure.savefig(target, dpi=120)
    plt.close(figure)


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baseline", type=Path, required=True, help="stats of one process")
    parser.add_argument("--ddp", type=Path, required=True, help="stats of a torchrun")
    parser.add_argument("-o", "--output", default="benchmark", help="prefix of the three files")
    arguments = parser.parse_args()

    baseline, ddp = load(arguments.baseline), load(arguments.ddp)
    check_comparable(baseline, ddp)
    runs = {
        label_of(stats): stats["global_batch"] / np.array(stats["step_seconds"])
        for stats in (baseline, ddp)
    }
    if len(runs) == 1:
        sys.exit("both files are of the same kind of run; give one of --baseline and one without")

    medians = [float(np.median(values)) for values in runs.values()]
    for label, median in zip(runs, medians, strict=True):
        print(f"{label:24} {median:10.2f} samples/s (median)")
    print(f"{'ratio':24} {medians[1] / medians[0]:10.2f}")

    prefix = Path(arguments.output)
    steps, bars = (prefix.with_name(prefix.name + end) for end in (".png", "_bars.png"))
    arrays = prefix.with_name(prefix.name + ".npz")
    np.savez(
        arrays,
        baseline_step_seconds=np.array(baseline["step_seconds"]),
        ddp_step_seconds=np.array(ddp["step_seconds"]),
        global_batch=baseline["global_batch"],
        world_size=ddp["world_size"],
        parameters=baseline["parameters"],
    )
    draw_steps(runs, steps)
    draw_bars(runs, bars)
    print(f"wrote {arrays}, {steps}, {bars}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
