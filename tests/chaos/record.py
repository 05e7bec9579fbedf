"""The result of a trial as one line of JSON, and tables of many."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field

from assess import Verdict
from job import Outcome
from scenario import DEFAULT_INTERVAL, Face, Fault, Scenario

#: Kinds of defects, in the order of the table. None of them may occur.
DEFECTS = ("hangs", "crashes", "wrong", "misnamed", "late", "unrecovered")


@dataclass(frozen=True)
class Record:
    seed: int
    text: str
    fault: str
    transport: str
    size: int
    face: str
    #: The liveness interval, in seconds.
    interval: float
    #: True if the fault has happened.
    struck: bool = False
    #: Seconds that the trial took; 0 if it was left out.
    seconds: float = 0.0
    #: Seconds from the fault to the error of each survivor.
    times: list[float] = field(default_factory=list)
    #: Number of errors that came after the promised bound, but within the allowance.
    beyond: int = 0
    #: Seconds after which broken connections were replaced.
    healed: list[float] = field(default_factory=list)
    #: Defects by kind.
    complaints: dict[str, list[str]] = field(default_factory=dict)
    #: The ranks' error messages, without repetition.
    messages: list[str] = field(default_factory=list)
    stderr: str = ""
    ran: bool = True

    @staticmethod
    def of(outcome: Outcome, verdict: Verdict) -> "Record":
        scenario, complaints = outcome.scenario, verdict.complaints
        said = {f"{e['kind']}: {e['text']}": 0 for e in outcome.of("error")}
        return Record(
            seed=scenario.seed,
            text=str(scenario),
            fault=str(scenario.fault),
            transport="cables" if scenario.cabled else scenario.transport,
            size=scenario.size,
            face=str(scenario.face),
            interval=scenario.liveness_interval,
            struck=bool(outcome.of("fault")),
            seconds=round(outcome.seconds, 3),
            times=[round(each, 4) for each in verdict.times],
            beyond=verdict.beyond,
            healed=outcome.healed,
            complaints=complaints,
            messages=list(said),
            stderr=outcome.stderr if complaints else "",
        )

    @staticmethod
    def of_none(scenario: Scenario) -> "Record":
        return Record(
            scenario.seed, str(scenario), str(scenario.fault), scenario.transport, scenario.size,
            str(scenario.face), scenario.liveness_interval, ran=False,
        )  # fmt: skip

    def line(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_line(line: str) -> "Record":
        return Record(**json.loads(line))


def counts(records: list[Record]) -> dict[str, int]:
    """Returns the number of trials with each kind of defect."""
    found = Counter(kind for each in records for kind in each.complaints)
    return {kind: found[kind] for kind in DEFECTS}


def _shares(times: list[float]) -> list[str]:
    """Returns the median, the 99th percentile and the maximum of sorted times."""
    last = len(times) - 1
    return [
        f"{times[min(int(p * len(times)), last)]:.3f}" if times else "-" for p in (0.5, 0.99, 1)
    ]


def table(records: list[Record]) -> str:
    """Returns a table with a row per fault: trials, defects, and seconds until the errors.

    Errors "beyond" came after the promised bound, but within the allowance. The last row shows the
    seconds until broken connections were replaced.
    """
    heads = ["trials", *DEFECTS, "beyond", "median s", "99 % s", "most s"]
    groups = {f"{fault}": [r for r in records if r.fault == fault] for fault in Fault}
    groups |= {f"with {face}": [r for r in records if r.face == face] for face in list(Face)[1:]}
    groups["at the default interval"] = [r for r in records if r.interval == DEFAULT_INTERVAL]
    groups["along cables"] = [r for r in records if r.transport == "cables"]
    rows = []
    for name, chosen in [*groups.items(), ("all", records)]:
        if not chosen:
            continue
        times = sorted(each for record in chosen for each in record.times)
        beyond = sum(record.beyond for record in chosen)
        numbers = [len([r for r in chosen if r.ran]), *counts(chosen).values(), beyond]
        rows.append([name, *map(str, numbers), *(_shares(times) if name != "all" else "---")])
    times = sorted(each for record in records for each in record.healed)
    blank = [""] * (len(DEFECTS) + 1)
    healing = len([record for record in records if record.healed])
    rows.append(["connections replaced", str(healing), *blank, *_shares(times)])
    width = max(len(row[0]) for row in rows)
    lines = [f"{'':{width}}  {'  '.join(heads)}"]
    for name, *cells in rows:
        aligned = [f"{cell:>{len(head)}}" for cell, head in zip(cells, heads, strict=True)]
        lines.append(f"{name:{width}}  {'  '.join(aligned)}")
    return "\n".join(lines)
