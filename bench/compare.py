"""Measures MCCL beside Gloo, Open MPI, MPICH and MLX's ring, in turns, and compares them.

    python bench/compare.py --quick                     all_reduce at the sizes of the bounds
    python bench/compare.py                             every collective, 8 B to 256 MiB
    python bench/compare.py --check                     only what bench/bounds.json needs
    python bench/compare.py --check --from FILE.json    the same, for an earlier run

A cell is one collective at one size. Times are medians in microseconds. A ratio is MCCL's time
divided by another contestant's, so MCCL is faster below 1. docs/performance.md describes how each
contestant is set up and what exactly is timed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from comparison import codecs
from comparison.bounds import Bound, Verdict, cells_needed, check, load_bounds
from comparison.contestant import ROOT, cores
from comparison.contestants import CONTESTANTS
from comparison.extras import EXTRAS, run_extra
from comparison.page import write_page
from comparison.progress import Progress
from comparison.results import Results, load
from comparison.run import Plan, Runner
from comparison.sizes import COLLECTIVES, FULL_SIZES, QUICK_SIZES, cells_of, parse_size
from comparison.table import notes_of, tables_of
from peers.cells import Cell

BOUNDS = ROOT / "bench" / "bounds.json"
REPORT = ROOT / "build/bench/report.md"
JSON = ROOT / "build" / "bench.json"


def names_of(known: Sequence[str]):  # noqa: ANN201  (argparse calls it)
    """Returns a parser of comma-separated names, which must all be in `known`."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is not one of {', '.join(known)}")
        return names

    return read


def ranks_of(text: str) -> list[int]:
    """Parses numbers of ranks, separated by commas."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"expected numbers of ranks such as 2,4; found '{text}'")
    return [int(part) for part in parts]


def sizes_of(text: str) -> list[int]:
    """Parses sizes, separated by commas."""
    try:
        return [parse_size(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def results_of(text: str) -> Results:
    """Loads the results of an earlier run."""
    try:
        return load(Path(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(
            f"{text}: expected a file written by --json ({error})"
        ) from None


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_argument_group("what to measure")
    what.add_argument(
        "--quick", action="store_true", help="all_reduce only, at the sizes of the bounds"
    )
    what.add_argument("--check", action="store_true", help="bounds only; fails if one is broken")
    what.add_argument("--ranks", type=ranks_of, default=[2, 4], metavar="NUMBER,…")
    what.add_argument("--collectives", type=names_of(COLLECTIVES), metavar="NAME,…")
    what.add_argument("--sizes", type=sizes_of, metavar="SIZE,…", help="such as 8,64K,16M")
    what.add_argument(
        "--contestants", type=names_of([*CONTESTANTS]), default=[*CONTESTANTS], metavar="NAME,…",
        help=f"any of {', '.join(CONTESTANTS)}",
    )  # fmt: skip
    what.add_argument(
        "--extras", type=names_of([*EXTRAS, "none"]), metavar="NAME,…",
        help="training steps (ddp), shaped cables (cables), the layer over MPI (openmpi, mpich) "
        "or none; default: all unless --quick",
    )  # fmt: skip
    how = parser.add_argument_group("duration")
    how.add_argument(
        "--rounds", type=int, help="turns of each contestant (default 3; 5 with --quick or --check)"
    )
    how.add_argument(
        "--seconds", type=float, default=0.2, help="duration of a cell in each round (default 0.2)"
    )
    how.add_argument(
        "--limit", type=float, default=60, help="seconds after which a cell is ended (default 60)"
    )
    where = parser.add_argument_group("input and output")
    where.add_argument(
        "--from", dest="earlier", type=results_of, metavar="FILE", help="report this run"
    )
    where.add_argument("--json", type=Path, default=JSON, help="default build/bench.json")
    where.add_argument("--plots", type=Path, metavar="DIR", help="write one plot per job size")
    where.add_argument(
        "--report", type=Path, nargs="?", const=REPORT, metavar="FILE",
        help="write tables and plots as one page; build/bench/report.md if FILE is left out",
    )  # fmt: skip
    return parser.parse_args(words)


def about_this_run() -> dict:
    """Describes the machine and the command."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else ""
    script = Path(sys.argv[0]).name
    return {
        "machine": f"{cores()} cores of {model or platform.machine()}, {platform.system()} "
        f"{'.'.join(platform.release().split('.')[:2])}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": shlex.join([f"bench/{script}", *sys.argv[1:]]),
        "cores": os.cpu_count(),
    }


def cells_asked(arguments: argparse.Namespace) -> dict[int, dict[str, list[Cell]]]:
    """Returns the cells to measure without --check, by number of ranks and contestant."""
    collectives = arguments.collectives or (["all_reduce"] if arguments.quick else COLLECTIVES)
    sizes = arguments.sizes or (QUICK_SIZES if arguments.quick else FULL_SIZES)
    return {
        ranks: {
            name: [
                cell
                for cell in cells_of(collectives, sizes)
                if cell.collective in CONTESTANTS[name].collectives
            ]
            for name in arguments.contestants
        }
        for ranks in arguments.ranks
    }


def cells_for_bounds(
    arguments: argparse.Namespace, bounds: Sequence[Bound]
) -> dict[int, dict[str, list[Cell]]]:
    """Returns the cells that the bounds need, for the chosen contestants and ranks."""
    return {
        ranks: {
            name: [cell for cell in cells if cell.collective in CONTESTANTS[name].collectives]
            for name, cells in by_name.items()
            if name in arguments.contestants
        }
        for ranks, by_name in cells_needed(bounds).items()
        if ranks in arguments.ranks
    }


def sizes_found(results: Results) -> list[int]:
    """Returns the measured sizes, which a bound with the size "every" covers."""
    collectives = set(COLLECTIVES) - {"barrier"}
    return sorted({key.cell.bytes for key in results.rows if key.cell.collective in collectives})


def measure(arguments: argparse.Namespace) -> Results:
    """Runs all requested measurements. Results are saved even if the run is interrupted."""
    few = arguments.quick or arguments.check
    rounds = arguments.rounds or (5 if few else 3)
    results = Results(about_this_run() | {"rounds": rounds})
    extras = arguments.extras or (["none"] if arguments.quick else list(EXTRAS))
    if arguments.check:
        bounds = load_bounds(BOUNDS, arguments.sizes or QUICK_SIZES)
        wanted = cells_for_bounds(arguments, bounds)
    else:
        wanted = cells_asked(arguments)
    plan = Plan(list(CONTESTANTS.values()), wanted, rounds, arguments.seconds, arguments.limit)
    chosen = [EXTRAS[name] for name in extras if name in EXTRAS]
    with Progress(plan.launches() + len(chosen)) as progress:
        runner = Runner(plan, results, progress)
        try:
            runner.run()
            for extra in chosen:
                progress.step(extra.name)
                run_extra(extra, rounds, results, runner.steadiness)
            if not arguments.check:
                results.about["codecs"] = codecs.measure()
        finally:
            results.about["steadiness"] = runner.steadiness.words()
            results.save(arguments.json)
    return results


def report(results: Results, verdicts: Sequence[Verdict]) -> None:
    """Prints tables, reasons for missing figures, and bounds."""
    for about in results.about.get("contestants", {}).values():
        for ranks, words in about["settings"].items():
            print(f"{about['title']}, {ranks} ranks: {words}")
    for table in tables_of(results):
        print(f"\n{table.text()}")
    if results.about.get("steadiness"):
        print(f"\nBetween the cores: {results.about['steadiness']}")
    for line in codecs.lines(results.about.get("codecs", {})):
        print(line if line.startswith(" ") else f"\n{line}")
    notes = notes_of(results)
    if notes:
        print("\nNot measured:", *notes, sep="\n  ")
    if verdicts:
        print("\nBounds:", *(verdict.line() for verdict in verdicts), sep="\n  ")


def main() -> int:
    """Measures or loads results, and reports them. Returns 1 if a checked bound does not hold."""
    arguments = parse_arguments()
    # SIGTERM raises SystemExit, so that the contestants are stopped too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = measure(arguments) if arguments.earlier is None else arguments.earlier
    verdicts = check(load_bounds(BOUNDS, sizes_found(results)), results)
    if not arguments.check:
        # Unmeasured bounds are reported only with --check.
        verdicts = [verdict for verdict in verdicts if verdict.ratio is not None]
    report(results, verdicts)
    folder = arguments.plots or (arguments.report.parent if arguments.report else None)
    pictures = []
    if folder is not None:
        from comparison.plot import plot

        pictures = plot(results, folder)
    if arguments.report is not None:
        write_page(arguments.report, results, verdicts, pictures)
    if arguments.earlier is None:
        print(f"\nwrote {arguments.json}")
    return 1 if arguments.check and not all(verdict.holds for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
