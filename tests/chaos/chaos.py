"""Random faults against random calls and messages of MCCL, between 2 to 8 processes.

Each trial derives its ranks, settings, calls and fault from its seed alone. Every rank is a process
that is forked from one that has imported what it needs, so that no trial starts an interpreter;
ranks in C++ then run a small program. A few more trials have no fault. Defects are:
  hangs        a call or the end of a process does not end
  crashes      a rank ends by a signal or an exception that is not MCCL's
  wrong        a result that was returned as good differs from the right one in any bit
  misnamed     an error is of another type, or names another rank, than the fault that was committed
  late         a survivor raises later than promised: 1 s after a death that the kernel reports,
               0.5 s after the liveness interval, 0.1 s after a timeout, or 1.5 s after a call that
               differs from the others', and --allowance for a busy machine
  unrecovered  the survivors cannot shrink their group and go on, or a file is left in /dev/shm
"""

import argparse
import math
import signal
import sys
import textwrap
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))

import lanes
from record import Record, counts, table
from scenario import chosen, draw

NEEDS = "root, a framework, a compiler or Open MPI"
EXAMPLES = """\
examples:
  make chaos                             1,000 faults, at most 20 minutes on two cores
  make chaos CHAOS="--trials 100"        the first 100 of them
  make chaos CHAOS="--replay 17"         the trial of seed 17 alone, with every event
  make chaos CHAOS="--list --seed 17 --trials 1"   what that trial does; runs nothing
  make chaos CHAOS="--record old.jsonl"  keep the results, for a later --compare old.jsonl

Trials that disturb a network or fill a disk need root and are left out without it. Those of torch,
MLX, C++ and MPI need these frameworks, a compiler and Open MPI. The exit status is 0 without
defects, 1 with any, and 2 if the arguments are wrong.
"""


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="chaos.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--trials", type=_positive, default=1000, metavar="N", help="number of faults (1000)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the first trial (0)")
    add("--seconds", type=float, default=math.inf, metavar="N", help="start no trial after N s")
    add("--replay", type=int, metavar="SEED", help="run one trial, and print every event")
    add("--list", action="store_true", help="print what the trials do, and run none")
    add("--at-once", type=_positive, default=3, metavar="N", help="trials that run at a time (3)")
    add("--allowance", type=float, default=1.0, metavar="S",
        help="seconds by which errors may be late on a busy machine (1)")  # fmt: skip
    add("--record", type=Path, metavar="FILE", help="write a line of JSON per trial")
    add("--compare", type=Path, metavar="FILE", help="print the table of these records too")
    return parser.parse_args(words)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def read(file: Path) -> list[Record]:
    return [Record.from_line(line) for line in file.read_text().splitlines()]


def replay(seed: int, allowance: float) -> int:
    """Runs one trial and prints its events in order of time, and what its ranks wrote."""
    lanes.prepare([seed])
    lanes.privatize()
    hosts = lanes.make_hosts()
    try:
        record, outcome = lanes.run_trial(seed, allowance, hosts)
    finally:
        if hosts is not None:
            hosts.close()
    print(f"seed {seed}: {record.text}")
    if outcome is None:
        print(f"not run: it needs {NEEDS}")
        return 2
    print(f"settings: {outcome.scenario.settings}")
    calls = outcome.scenario.calls(outcome.scenario.step)
    print(f"calls of its step: {', '.join(map(str, calls))}")
    events = sorted(outcome.events, key=lambda event: event["at"])
    for event in events:
        facts = {k: v for k, v in event.items() if k not in ("event", "rank", "at")}
        at = event["at"] - events[0]["at"]
        print(f"{at:8.4f} s  rank {event['rank']}  {event['event']}  {facts or ''}")
    print(f"exit codes: {outcome.codes}")
    print(outcome.stderr, end="")
    _complain(record)
    return 1 if record.complaints else 0


def _complain(record: Record) -> None:
    for kind, texts in record.complaints.items():
        for text in texts:
            print(f"  {kind}: {text}")


def run(asked: argparse.Namespace) -> list[Record]:
    seeds = list(chosen(asked.seed, asked.trials))
    records: list[Record] = []
    file = asked.record.open("w") if asked.record else None
    terminal = sys.stderr.isatty()
    end = time.monotonic() + asked.seconds
    for record in lanes.run_all(seeds, asked.at_once, asked.allowance, end):
        records.append(record)
        if file:
            print(record.line(), file=file, flush=True)
        if record.complaints:
            print(f"{chr(13) if terminal else ''}seed {record.seed}: {record.text}")
            _complain(record)
            print("  output of its ranks:\n" + textwrap.indent(record.stderr[-3000:], "    "))
            print(f'  replay it: make chaos CHAOS="--replay {record.seed}"', flush=True)
        if terminal:
            bad = sum(1 for each in records if each.complaints)
            progress = f"\r{len(records)} of {len(seeds)} trials, {bad} with defects "
            print(progress, end="", file=sys.stderr, flush=True)
    if terminal:
        print(file=sys.stderr)
    if file:
        file.close()
    return records


def main(words: list[str] | None = None) -> int:
    asked = arguments(words)
    if asked.replay is not None:
        return replay(asked.replay, asked.allowance)
    if asked.list:
        for seed in chosen(asked.seed, asked.trials):
            print(f"{seed}: {draw(seed)}")
        return 0
    before = read(asked.compare) if asked.compare else []
    began = time.monotonic()
    records = run(asked)
    seconds = time.monotonic() - began
    if before:
        print(f"before ({asked.compare}):\n{table(before)}\n\nnow:")
    print(table(records))
    left_out = sum(1 for each in records if not each.ran)
    struck = sum(1 for each in records if each.struck)
    print(f"\n{len(records) - left_out} trials, {struck} faults, in {seconds:.0f} s", end="")
    print(f", {left_out} left out, which need {NEEDS}" if left_out else "", end=": ")
    found = counts(records)
    print(", ".join(f"{number} {kind}" for kind, number in found.items()))
    print(
        f"{sum(len(each.times) for each in records)} errors, of which "
        f"{sum(each.beyond for each in records)} came beyond the promised bound, within the "
        f"allowance of {asked.allowance:g} s"
    )
    return 1 if any(found.values()) else 0


def end() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("chaos.py: a signal ended it"))
    sys.exit(main())


if __name__ == "__main__":
    end()
