"""The campaign of random faults: its verdicts, and a slice of its trials."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("ml_dtypes")

import traffic
from assess import assess, names, names_well
from job import Outcome, healing_times
from record import Record, counts, table
from scenario import Face, Fault, Moment, Scenario, chosen, draw

CHAOS = Path(__file__).resolve().parents[1] / "chaos" / "chaos.py"
PEERS = CHAOS.with_name("peer_libraries.py")
GONE = "all_reduce #2 (sum of 4 f32) on rank 0 failed: rank 1 is gone: it has ended"


def scenario(fault: Fault, **changes: object) -> Scenario:
    facts = {"fault": fault, "victim": 1, "moment": Moment.INSIDE, "size": 3, "face": Face.NUMPY}
    facts |= {"cabled": False, "scene": ""}
    base = dataclasses.replace(draw(0), liveness_interval=1.0, **facts)
    return dataclasses.replace(base, **changes)


def outcome_of(scenario: Scenario, *events: dict, codes: dict | None = None) -> Outcome:
    good = dict.fromkeys(range(scenario.size), 0)
    fault = {"event": "fault", "rank": 1, "at": 10.0}
    return Outcome(scenario, events=[fault, *events], codes=good | (codes or {}))


def error(rank: int, text: str = GONE, kind: str = "PeerError", at: float = 10.1) -> dict:
    return {"event": "error", "rank": rank, "at": at, "kind": kind, "text": text, "step": 3}


KILLED = scenario(Fault.KILL)


def test_a_death_that_every_survivor_names_in_time_is_as_it_should_be():
    verdict = assess(outcome_of(KILLED, error(0), error(2), codes={1: -9}), 0.0)
    assert verdict.complaints == {}
    assert verdict.times == [pytest.approx(0.1), pytest.approx(0.1)]


def test_a_rank_that_could_not_meet_because_of_the_death_may_be_named_too():
    met = [{"event": "met", "rank": rank, "at": 9.0} for rank in (0, 1)]
    lost = error(2, "rank 2 lost its connection to the store: rank 1 ended")
    left = error(0, GONE.replace("rank 1", "rank 2"))
    alone = {"event": "recovered", "rank": 0, "size": 1}
    assert assess(outcome_of(KILLED, *met, lost, left, alone, codes={1: -9}), 0.0).complaints == {}
    met.append({"event": "met", "rank": 2, "at": 9.0})
    found = assess(outcome_of(KILLED, *met, lost, left, alone, codes={1: -9}), 0.0)
    assert list(found.complaints) == ["misnamed", "unrecovered"]


@pytest.mark.parametrize(
    ("case", "events", "codes", "kind"),
    [
        (KILLED, [error(0, at=11.2)], {1: -9}, "late"),
        (KILLED, [error(0, GONE.replace("rank 1", "rank 2"))], {1: -9}, "misnamed"),
        (KILLED, [error(0, kind="AbortedError")], {1: -9}, "misnamed"),
        (KILLED, [error(0)], {1: -9, 2: -11}, "crashes"),
        (KILLED, [{"event": "wrong", "rank": 2, "at": 9.0, "text": "x"}], {1: -9}, "wrong"),
        (KILLED, [{"event": "lost", "rank": 0, "kind": "x", "text": ""}], {}, "unrecovered"),
        (KILLED, [{"event": "recovered", "rank": 0, "size": 3}], {}, "unrecovered"),
        (KILLED, [{"event": "broken", "rank": 0, "kind": "x", "text": ""}], {}, "crashes"),
        (scenario(Fault.PAUSE), [error(0)], {}, "misnamed"),
        (scenario(Fault.PAUSE), [], {1: -9}, "crashes"),
        (scenario(Fault.STOP), [error(0, at=11.6)], {}, "late"),
        (scenario(Fault.STOP, face=Face.MPI), [error(0, at=13.1)], {1: -9}, "late"),
        (scenario(Fault.HALF), [error(0, at=11.6)], {}, "late"),
        (scenario(Fault.CRAWL), [error(0)], {}, "misnamed"),
        (scenario(Fault.STARVE), [error(0, "it timed out", "TimeoutError")], {}, "misnamed"),
        (scenario(Fault.STARVE), [error(0, kind="TimeoutError", at=10.6)], {}, "late"),
        (scenario(Fault.SHM), [error(0)], {}, "misnamed"),
        (scenario(Fault.FILES, moment=Moment.MEETING), [error(0, at=20.1)], {}, "late"),
        (scenario(Fault.FILES), [error(0, GONE.replace("rank 1", "rank 2"))], {}, "misnamed"),
        (scenario(Fault.ABORT), [error(0)], {}, "misnamed"),
        (scenario(Fault.DISK), [error(0)], {}, "misnamed"),
        (scenario(Fault.MISMATCH), [error(0, kind="MismatchError", at=11.6)], {}, "late"),
        (scenario(Fault.MISMATCH), [error(1, kind="TimeoutError")], {}, "misnamed"),
    ],
)
def test_a_defect_is_counted_under_its_kind(case: Scenario, events: list, codes: dict, kind: str):
    assert list(assess(outcome_of(case, *events, codes=codes), 0.0).complaints) == [kind]


def test_results_that_differ_between_ranks_are_wrong():
    digests = [
        {"event": "digest", "rank": rank, "place": [4, 0], "call": "x", "digest": rank % 2 + 1}
        for rank in range(3)
    ]
    assert assess(outcome_of(KILLED, *digests), 0.0).wrong == ["x [4, 0]: results differ"]


def test_a_hang_is_not_counted_as_a_crash_too():
    outcome = outcome_of(KILLED, codes={0: -9, 1: -9})
    outcome.hangs.append("rank 0 hangs in its calls")
    assert list(assess(outcome, 0.0).complaints) == ["hangs"]


def test_ranks_are_read_from_messages():
    assert names("ranks 1, 2 and 4 have not arrived", 4)
    assert names("rank 12 is gone", 12)
    assert not names("rank 12 is gone", 1)
    assert names_well(KILLED, 0, "PeerError", GONE)


def test_a_seed_gives_the_same_trial_and_all_faults_occur():
    drawn = [draw(seed) for seed in chosen(0, 1000)]
    assert drawn == [draw(seed) for seed in chosen(0, 1000)]
    assert {each.fault for each in drawn} == set(Fault)
    assert {each.face for each in drawn} == set(Face)
    assert {each.size for each in drawn} == set(range(2, 9))
    assert {each.transport for each in drawn} == {"shm", "tcp", "auto"}
    assert {each.cabled for each in drawn} == {True, False}
    assert {each.compression for each in drawn} == {"none", "fp16", "bf16", "int8"}
    assert KILLED.calls(3) == KILLED.calls(3)


def test_the_campaign_has_the_faults_that_it_promises():
    faults = [each for each in map(draw, chosen(0, 1000)) if each.fault != Fault.NONE]
    faces = Counter(each.face for each in faults)
    assert len(faults) == 1000
    assert faces[Face.NUMPY] + faces[Face.CPP] >= 900
    assert faces[Face.CPP] >= 150
    assert min(faces[Face.TORCH], faces[Face.MLX]) >= 30
    assert faces[Face.MPI] >= 10
    assert sum(each.liveness_interval == 10 for each in faults) >= 20


def test_a_record_survives_its_line_and_the_table_counts_it():
    verdict = assess(outcome_of(KILLED, error(0, at=12.0), codes={1: -9}), 0.0)
    record = Record.of(outcome_of(KILLED), verdict)
    assert Record.from_line(record.line()) == record
    assert counts([record])["late"] == 1
    assert "killed" in table([record])


def test_an_error_within_the_allowance_is_no_defect_but_is_counted():
    verdict = assess(outcome_of(KILLED, error(0, at=11.2), error(2), codes={1: -9}), 1.0)
    assert verdict.complaints == {}
    assert verdict.beyond == 1
    assert Record.of(outcome_of(KILLED), verdict).beyond == 1


def test_times_to_healing_are_read_from_warnings_and_have_a_row():
    said = "the connection to rank 1 (tcp) was replaced after {} s, without loss of data: reset\n"
    outcome = dataclasses.replace(outcome_of(KILLED, codes={1: -9}), healed=[0.05, 1.5])
    assert healing_times(said.format("0.05") + "x" + said.format("1.2e-05")) == [0.05, 1.2e-05]
    last = table([Record.of(outcome, assess(outcome, 0.0))]).splitlines()[-1]
    assert last.split() == ["connections", "replaced", "1", "1.500", "1.500", "1.500"]


class Alone:
    """A group of one rank, or of a rank whose sum is wrong in one element."""

    rank, size = 0, 1

    def __init__(self, wrong: bool) -> None:
        self.wrong = wrong

    def all_reduce(self, x, op, **_):
        y = x.copy()
        y[-1] += self.wrong
        return y


@pytest.mark.parametrize("wrong", [False, True])
def test_a_result_with_one_wrong_element_is_noticed(wrong: bool):
    call = traffic.Call("all_reduce", 100, "f4", "sum", 0, 0, 3)
    started = traffic.Started(Alone(wrong), call, wait=True)
    assert bool(started.fault("none")) == wrong


def run(*words: str, program: Path = CHAOS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), *words], capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("trials", [15, pytest.param(30, marks=pytest.mark.long)])
def test_trials_have_no_defect(tmp_path: Path, trials: int):
    file = tmp_path / "records.jsonl"
    # Beside other tests, a process may wait seconds for a core.
    options = ("--seed", "5000", "--allowance", "5", "--record", str(file))
    ran = run("--trials", str(trials), *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 hangs, 0 crashes, 0 wrong" in ran.stdout
    ran = [Record.from_line(line) for line in file.read_text().splitlines()]
    assert sum(each.fault != Fault.NONE for each in ran) == trials


def test_a_trial_is_replayed_alone():
    ran = run("--replay", "4", "--allowance", "5")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"rank {draw(4).victim}  fault" in ran.stdout


@pytest.mark.parametrize("words", [["--trials", "0"], ["--trials", "x"], ["--sed", "1"]])
def test_wrong_arguments_are_refused(words: list[str]):
    ran = run(*words)
    assert ran.returncode == 2
    assert "usage: chaos.py" in ran.stderr


@pytest.mark.long
def test_the_faults_of_peers_end_well_with_mccl():
    systems = ("mccl-tcp", "mccl-shm", "gloo")
    faults = ("kill", "exit", "pause", "mismatch")
    ran = run("--trials", "1", "--systems", *systems, "--faults", *faults, program=PEERS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [line.split(" | ") for line in ran.stdout.splitlines()[2:]]
    assert len(rows) == len(faults)
    assert [row[1].split()[0] for row in rows] == ["error", "error", "go", "error"], ran.stdout
    assert all("names the rank" in row[1] for row in rows[:2]), ran.stdout
