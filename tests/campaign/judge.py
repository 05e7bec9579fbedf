"""Compares the output of mccl in a trial with the expected output."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from expect import Expected, Finding, Job, of_config, of_doctor, of_job
from graph import joined
from said import Config, Doctor, Ran, Run, Said
from trial import Fault, Trial

#: Notes on how busy this machine's cores are. They do not depend on the trial.
ABOUT_THE_MACHINE = frozenset({"load-high", "cores-asleep", "path-late"})
STATUS_OF_WORST = {"problem": 1, "warning": 3, "note": 0}


@dataclass
class Verdict:
    """The result of a trial: one line for each deviation from what was expected."""

    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.wrong or self.missed or self.hangs)


def judge(trial: Trial, said: Said) -> Verdict:
    verdict = Verdict()
    for ran in said.commands:
        if ran.status is None:
            verdict.hangs.append(f"{ran.name}: it did not end in {ran.seconds:.0f} s")
    for config in _ended(said.configs):
        _judge_config(trial, config, verdict)
    for doctor in _ended(said.doctors):
        _judge_doctor(trial, doctor, verdict)
    for job in _ended(said.runs):
        _judge_job(trial, job, verdict)
    verdict.wrong += [f"left behind: {each}" for each in said.left_behind]
    return verdict


def _ended(steps: list) -> list:
    return [step for step in steps if step.ran.status is not None]


def findings_of(ran: Ran) -> set[Finding]:
    """Returns all findings except the notes on this machine itself."""
    return {
        Finding(each["id"], places_of(each["where"]))
        for each in ran.answer.get("findings", [])
        if each["id"] not in ABOUT_THE_MACHINE
    }


def places_of(where: str) -> tuple:
    """Parses the `where` of a finding, as docs/operating.md shows it, into hosts and interfaces."""
    direction = where.split(" to ")
    parts = direction if len(direction) == 2 else re.split(r", | \| ", where)
    places = []
    for part in parts:
        interface = re.search(r" \((\S+)\)$", part)
        places.append((part.split(" ")[0], interface[1] if interface else ""))
    return tuple(places if len(direction) == 2 else sorted(places))


def _compare(name: str, ran: Ran, expected: Expected, verdict: Verdict) -> None:
    found = findings_of(ran)
    right = expected.must | expected.any_of | expected.may
    verdict.wrong += [f"{name}: {each}" for each in sorted(found - right)]
    verdict.missed += [f"{name}: {each}" for each in sorted(expected.must - found)]
    if expected.any_of and not expected.any_of & found:
        verdict.missed.append(f"{name}: one of {'; '.join(map(str, sorted(expected.any_of)))}")


def _judge_config(trial: Trial, config: Config, verdict: Verdict) -> None:
    expected = of_config(trial, config.names, config.planted)
    name = f"config of {' '.join(config.names)}"
    error = config.ran.answer.get("error", "")
    refuses_one = config.planted and config.names_unaskable(trial)
    if refuses_one:
        _judge_error(trial, name, error, verdict)
    elif error or not config.ran.answer:
        verdict.wrong.append(f"{name}: {error or config.ran.stderr[-500:] or 'it said nothing'}")
        return
    _compare(name, config.ran, expected, verdict)
    if expected.hostfile is not None and config.wrote != expected.hostfile:
        wrong = verdict.wrong if expected.hostfile else verdict.missed
        wrong.append(f"{name}: {'a' if config.wrote else 'no'} hostfile is written")


def _judge_error(trial: Trial, name: str, error: str, verdict: Verdict) -> None:
    named = names_in_error(error, trial.names)
    if trial.victim not in named:
        verdict.missed.append(f"{name}: no error names {trial.victim}: {error[-500:]!r}")
    verdict.wrong += [f"{name}: the error names {each}" for each in sorted(named - {trial.victim})]


def _judge_doctor(trial: Trial, doctor: Doctor, verdict: Verdict) -> None:
    answer = doctor.ran.answer
    if "findings" not in answer:
        verdict.wrong.append(f"doctor: {answer.get('error') or doctor.ran.stderr[-500:]}")
        return
    _compare("doctor", doctor.ran, of_doctor(trial, doctor.names, doctor.addressed), verdict)
    status = 0
    severities = {each["severity"] for each in answer["findings"]}
    for severity in ("note", "warning", "problem"):
        status = STATUS_OF_WORST[severity] if severity in severities else status
    if doctor.ran.status != status:
        verdict.wrong.append(f"doctor: its status is {doctor.ran.status}, and should be {status}")


def _judge_job(trial: Trial, job: Run, verdict: Verdict) -> None:
    name = f"{job.kind} on {' '.join(job.names)}"
    expected = of_job(trial, job.names)
    if job.ran.status == 0:
        if expected == Job.REFUSED:
            verdict.missed.append(f"{name}: no error though {trial.victim} has a fault")
        else:
            _judge_result(name, job, verdict)
    elif expected == Job.GOOD:
        verdict.wrong.append(f"{name}: status {job.ran.status}: {job.ran.stderr[-1500:]}")
    elif trial.fault == Fault.CLOSED_PORTS:
        if not behind_firewall(trial, job.names) & unreached_ranks(job):
            verdict.missed.append(f"{name}: no error says that {trial.victim} is not reached")
    elif job.kind == "mlx" and trial.fault == Fault.NO_MCCL:
        # Plain MLX runs there and waits. The other ranks give up first, so errors name them too.
        if f"--mlx had taken effect in no program on {trial.victim}:" not in job.ran.stderr:
            verdict.missed.append(f"{name}: nothing says that {trial.victim} has no mccl")
    else:
        _judge_error(trial, name, job.ran.stderr, verdict)


def _judge_result(name: str, job: Run, verdict: Verdict) -> None:
    """Checks that every rank printed its line and that all have the same, correct result."""
    size = len(job.names)
    lines = [re.fullmatch(r"rank (\d+) of (\d+): (\w+)", line) for line in job.lines]
    if not all(lines) or sorted(int(line[1]) for line in lines) != list(range(size)):
        verdict.wrong.append(f"{name}: it printed {job.lines}")
        return
    results = {line[3] for line in lines}
    right = {str(size * (size + 1) // 2)} if job.kind == "mlx" else results
    if len(results) != 1 or results != right or {int(line[2]) for line in lines} != {size}:
        verdict.wrong.append(f"{name}: its results are {job.lines}")


def unreached_ranks(job: Run) -> set[str]:
    """Returns the hosts that other ranks did not reach, according to the ranks' errors."""
    text = job.ran.stderr
    ranks = re.findall(r"connect to rank (\d+)\b", text)
    ranks += re.findall(r"could not reach the store of rank (\d+)\b", text)
    # This error suspects the firewall of its own host.
    ranks += re.findall(r"\brank (\d+) waited .*reach port \d+ of this rank \(firewall\b", text)
    for several in re.findall(r"\branks? ([\d, and]+) ha(?:s|ve) not", text):
        ranks += re.findall(r"\d+", several)
    return {job.names[int(rank)] for rank in ranks if int(rank) < len(job.names)}


def behind_firewall(trial: Trial, names: Iterable[str]) -> set[str]:
    """Returns the hosts that the firewall may cut off.

    These are the victim, or all hosts if the others reach each other through the victim only.
    """
    others = [name for name in names if name != trial.victim]
    splits = trial.cables and not joined(others, trial.cables)
    return set(names) if splits else {trial.victim}


def names_in_error(text: str, names: Iterable[str]) -> set[str]:
    """Returns the hosts that an error of launch or config names."""
    found = set(re.findall(r"^(?:mccl \w+: |  )(\w+): ", text, re.MULTILINE))
    found |= set(re.findall(r"\bon (\w+) (?:exited|was)", text))
    return found & set(names)
