"""Compares the algorithms that MCCL chooses with all others.

    python bench/choices.py                      2 and 4 ranks, every collective, six sizes
    python bench/choices.py --ranks 2,4,8,16     on a machine with 16 cores
    python bench/choices.py --at-most 1.1        exit status 1 if a choice takes longer than that

Runs `mccl bench` with the choice of MCCL and with each algorithm, in turns, and compares the median
times of the turns. A cell is a collective at a size, out of place if the collective allows it. Its
ratio is the time of the choice divided by that of the fastest algorithm, so 1 is the best possible.
The chosen algorithm is also measured by itself, which shows how much equal runs differ.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from comparison.mccl_program import mccl_program

#: The algorithms of src/schedule/schedule.h that need no other host.
ALGORITHMS = (
    "direct",
    "ring",
    "ring_both",
    "recursive_doubling",
    "binomial_tree",
    "chain",
    "pairwise",
    "dissemination",
    "one_shot",
    "two_shot",
)
COLLECTIVES = (
    "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,reduce,gather,scatter,barrier"
)
LIMIT = 300.0  # seconds of one run of mccl bench

Cell = tuple[str, int]  # collective, bytes


def measure(arguments: argparse.Namespace, ranks: int, algorithm: str) -> dict[Cell, tuple]:
    """Runs mccl bench once. Returns microseconds and the algorithm that ran, by cell."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "rows.csv"
        command = [
            *(str(arguments.program), "bench", *arguments.collectives.split(","), "--no-bounds"),
            *("--ranks", str(ranks), "--algorithm", algorithm, "--sizes", arguments.sizes),
            *("--seconds", str(arguments.seconds), "--csv", str(table)),
        ]
        # The exit status is 1 if the algorithm does not support some of the calls.
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        if not table.exists():
            raise SystemExit(f"choices: {' '.join(command)} failed:\n{done.stderr}")
        found: dict[Cell, tuple] = {}
        for row in csv.DictReader(table.read_text().splitlines()):
            cell = (row["collective"], int(row["bytes"]))
            found.setdefault(cell, (float(row["time_us"]), row["algorithm"]))
        return found


def compare(arguments: argparse.Namespace, ranks: int) -> list[float]:
    """Prints a line for each cell of one number of ranks. Returns the ratios."""
    times: dict[tuple[Cell, str], list[float]] = defaultdict(list)
    chosen: dict[Cell, str] = {}
    for turn in range(arguments.turns):
        order = ["auto", *ALGORITHMS]
        for algorithm in order if turn % 2 == 0 else reversed(order):
            for cell, (micros, ran) in measure(arguments, ranks, algorithm).items():
                times[cell, algorithm].append(micros)
                if algorithm == "auto":
                    chosen[cell] = ran
    ratios = []
    for cell, choice in chosen.items():
        medians = {
            name: statistics.median(times[cell, name])
            for name in ("auto", *ALGORITHMS)
            if times[cell, name]
        }
        alone = medians.get(choice, medians["auto"])
        micros = medians.pop("auto")
        fastest = min(medians, key=medians.__getitem__, default=choice)
        ratio = micros / medians.get(fastest, micros)
        ratios.append(ratio)
        print(
            f"{ranks:5} {cell[0]:15} {cell[1]:>10} {choice:19} {micros:>10.2f} {alone:>10.2f} "
            f"{fastest:19} {medians.get(fastest, micros):>10.2f} {ratio:>6.2f}",
            flush=True,
        )
    return ratios


def main() -> int:
    """Measures, and checks the ratios if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, default 2,4")
    parser.add_argument("--sizes", default="8,1K,64K,256K,1M,16M", help="as of mccl bench")
    parser.add_argument("--collectives", default=COLLECTIVES, help="default: all")
    parser.add_argument("--turns", type=int, default=3, help="runs of each algorithm, default 3")
    parser.add_argument("--seconds", type=float, default=0.02, help="of each half of a row")
    parser.add_argument("--at-most", type=float, help="largest ratio that is allowed")
    parser.add_argument("--program", default=mccl_program(), help="the mccl program")
    arguments = parser.parse_args()
    print(
        f"ranks {'collective':15} {'bytes':>10} {'chosen':19} {'time, us':>10} {'alone':>10} "
        f"{'fastest':19} {'time, us':>10} {'ratio':>6}"
    )
    ratios = [r for ranks in arguments.ranks.split(",") for r in compare(arguments, int(ranks))]
    good = sum(ratio <= 1.1 for ratio in ratios)
    print(
        f"{good} of {len(ratios)} choices take at most 1.1 times as long as the fastest algorithm; "
        f"median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}"
    )
    return int(arguments.at_most is not None and max(ratios) > arguments.at_most)


if __name__ == "__main__":
    sys.exit(main())
