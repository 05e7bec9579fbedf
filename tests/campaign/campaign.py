"""Random clusters with random faults, from `mccl config` to a step of torch and a sum of MLX.

Each trial derives hosts, cables between them and a fault from its seed alone. It runs config,
doctor and launch, and compares their output with the trial. A finding without a cause is wrong, an
expected finding that is absent is missed, and a command that exceeds its time limit hangs.
"""

import argparse
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))

import ssh_hosts
from judge import Verdict, judge
from said import Said
from steps import run_trial
from trial import Trial, draw
from world import World


@dataclass(frozen=True)
class Result:
    trial: Trial
    said: Said
    verdict: Verdict
    seconds: float


def run(seed: int) -> Result:
    """Runs the trial of this seed, from making its hosts to removing them."""
    began = time.monotonic()
    trial = draw(seed)
    with World(trial) as world:
        said = run_trial(world)
    return Result(trial, said, judge(trial, said), time.monotonic() - began)


def complaints(verdict: Verdict) -> list[str]:
    kinds = {"wrong": verdict.wrong, "missed": verdict.missed, "hang": verdict.hangs}
    return [f"{kind}: {text}" for kind, texts in kinds.items() for text in texts]


def table(results: list[Result]) -> str:
    """Returns a table of the number of trials by fault and cabling."""
    cablings = sorted({each.trial.cabling.value for each in results})
    faults = sorted({each.trial.fault.value for each in results})
    counts = Counter((each.trial.fault.value, each.trial.cabling.value) for each in results)
    width = max(map(len, [*faults, "all"]))
    rows = [f"{'':{width}}  {'  '.join(cablings)}  all"]
    for fault in [*faults, "all"]:
        chosen = faults if fault == "all" else [fault]
        numbers = [sum(counts[each, c] for each in chosen) for c in cablings]
        cells = [f"{n or '-':>{len(c)}}" for n, c in zip(numbers, cablings, strict=True)]
        rows.append(f"{fault:{width}}  {'  '.join(cells)}  {sum(numbers):3}")
    return "\n".join(rows)


def totals(results: list[Result]) -> tuple[int, int, int]:
    """Returns the numbers of wrong findings, missed findings and hangs."""
    verdicts = [each.verdict for each in results]
    return (
        sum(len(each.wrong) for each in verdicts),
        sum(len(each.missed) for each in verdicts),
        sum(len(each.hangs) for each in verdicts),
    )


def show(result: Result) -> None:
    """Prints every command of the trial with all its output."""
    for ran in result.said.commands:
        print(f"\n--- {ran.name}: status {ran.status}, {ran.seconds:.1f} s", file=sys.stderr)
        print(ran.stdout + ran.stderr, file=sys.stderr)


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="campaign.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=50, metavar="N", help="default: 50")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial; default: 0")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one trial, with all it said")
    parser.add_argument("--list", action="store_true", help="say what the trials are; run none")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    asked = arguments(words)
    seeds = range(asked.seed, asked.seed + asked.trials)
    if asked.replay is not None:
        seeds = range(asked.replay, asked.replay + 1)
    if asked.list:
        for seed in seeds:
            print(f"{seed}: {draw(seed)}")
        return 0
    if why := ssh_hosts.missing():
        print(f"no trial can run: {why}", file=sys.stderr)
        return 2
    results = []
    for number, seed in enumerate(seeds, 1):
        print(f"{number} of {len(seeds)}, seed {seed}: {draw(seed)}", file=sys.stderr, flush=True)
        results.append(run(seed))
        for text in complaints(results[-1].verdict) or ["as it should be"]:
            print(f"  {text}", file=sys.stderr)
        print(f"  {results[-1].seconds:.1f} s", file=sys.stderr, flush=True)
        if asked.replay is not None:
            show(results[-1])
    wrong, missed, hangs = totals(results)
    seconds = sum(each.seconds for each in results)
    print(table(results))
    print(f"\n{len(results)} trials in {seconds:.0f} s: ", end="")
    print(f"{wrong} wrong findings, {missed} missed findings, {hangs} hangs")
    return 0 if (wrong, missed, hangs) == (0, 0, 0) else 1


def end() -> None:
    # SystemExit unwinds the stack, so that the World of the current trial removes its hosts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("campaign.py: a signal ended it"))
    sys.exit(main())


if __name__ == "__main__":
    end()
