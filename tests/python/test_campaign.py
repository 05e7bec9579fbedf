"""The campaign of random clusters: its judge, its functions on graphs, and two of its trials."""

import dataclasses
import itertools
import json
import random

import campaign
import pytest
import ssh_hosts
from expect import Finding, Job, Shape, at, of_config, of_doctor, of_job, shape_of
from graph import has_ring, joined, parts
from judge import findings_of, judge, places_of, unreached_ranks
from said import Config, Doctor, Ran, Run, Said
from trial import Cabling, Fault, Trial, draw

CHAIN = (("a", "b"), ("b", "c"))
BASE = Trial(
    seed=1, names=("a", "b", "c"), cabling=Cabling.CHAIN, cables=CHAIN, apart=False,
    addressed=True, over="", fault=Fault.NONE, victim="", interface="", early=False,
)  # fmt: skip


def with_fault(fault: Fault, **changes: object) -> Trial:
    return dataclasses.replace(BASE, **({"fault": fault, "victim": "b"} | changes))


def finding(id: str, where: str, severity: str = "problem") -> dict:
    return {"id": id, "where": where, "severity": severity}


def ran(name: str, status: int | None = 0, out: object = "", err: str = "") -> Ran:
    text = out if isinstance(out, str) else json.dumps(out)
    return Ran(name, status, text, err, 1.0)


def doctor(*findings: dict, status: int = 0) -> Doctor:
    answer = {"findings": list(findings)}
    return Doctor(ran("doctor", status, answer), BASE.names, frozenset({0, 1}))


def config(*findings: dict, status: int = 0, **changes: object) -> Config:
    whole = Config(ran("config", status, {"findings": list(findings)}), BASE.names, False, True)
    return dataclasses.replace(whole, **changes)


def job(kind: str = "mlx", result: str = "6", status: int = 0, err: str = "") -> Run:
    lines = "".join(f"rank {r} of 3: {result}\n" for r in range(3)) if status == 0 else ""
    return Run(ran("launch", status, lines, err), BASE.names, kind)


def verdict(trial: Trial, *steps: object, left: tuple[str, ...] = ()) -> tuple[int, int, int]:
    said = Said(
        [step for step in steps if isinstance(step, Config)],
        [step for step in steps if isinstance(step, Doctor)],
        [step for step in steps if isinstance(step, Run)],
        list(left),
    )
    found = judge(trial, said)
    return len(found.wrong), len(found.missed), len(found.hangs)


DOWN = with_fault(Fault.DOWN)
TOLD_OF_DOWN = (
    finding("host-unreachable", "b"), finding("cable-cut", "a"), finding("cable-cut", "c"),
)  # fmt: skip
NOT_STARTED = "mccl launch: nothing was started:\n  {}: the host cannot be reached"


@pytest.mark.parametrize(
    ("trial", "steps"),
    [
        (BASE, (config(), doctor(), job(), job("torch", "d1"))),
        (BASE, (doctor(finding("load-high", "a", "note")),)),
        (DOWN, (doctor(*TOLD_OF_DOWN, status=1), job(status=1, err=NOT_STARTED.format("b")))),
    ],
    ids=["sound", "a busy machine", "down"],
)
def test_the_judge_accepts_correct_results(trial: Trial, steps: tuple):
    assert verdict(trial, *steps) == (0, 0, 0)


@pytest.mark.parametrize(
    ("trial", "step", "wrong", "missed", "hangs"),
    [
        (BASE, doctor(finding("cable-cut", "a"), status=1), 1, 0, 0),
        (BASE, doctor(finding("load-high", "a", "note"), status=1), 1, 0, 0),
        (BASE, Doctor(ran("doctor", 1, {"error": "x"}), BASE.names, frozenset()), 1, 0, 0),
        (BASE, Doctor(ran("doctor", None), BASE.names, frozenset()), 0, 0, 1),
        (BASE, config(wrote=False), 1, 0, 0),
        (BASE, config(finding("no-ring", "a, b, c", "note")), 1, 0, 0),
        (BASE, Config(ran("config", 1, {"error": "x"}), BASE.names, False, False), 1, 0, 0),
        (BASE, job(result="7"), 1, 0, 0),
        (BASE, job(status=1, err=NOT_STARTED.format("b")), 1, 0, 0),
        (BASE, Run(ran("launch", 0, "rank 0 of 3: 6\n"), BASE.names, "mlx"), 1, 0, 0),
        (BASE, Run(ran("launch", None), BASE.names, "mlx"), 0, 0, 1),
        (DOWN, doctor(*TOLD_OF_DOWN[:2], status=1), 0, 1, 0),
        (DOWN, doctor(*TOLD_OF_DOWN[1:], status=1), 0, 1, 0),
        (DOWN, doctor(*TOLD_OF_DOWN, finding("path-slow", "a (cable) to c"), status=1), 1, 0, 0),
        (DOWN, job(), 0, 1, 0),
        (DOWN, job(status=1, err="mccl launch: something is wrong"), 0, 1, 0),
        (DOWN, job(status=1, err=NOT_STARTED.format("a")), 1, 1, 0),
        (DOWN, config(planted=True), 0, 2, 0),
    ],
)
def test_the_judge_rejects_incorrect_results(
    trial: Trial, step: object, wrong: int, missed: int, hangs: int
):
    assert verdict(trial, step) == (wrong, missed, hangs)


def test_ranks_whose_parameters_differ_are_wrong():
    lines = "".join(f"rank {r} of 3: d{r}\n" for r in range(3))
    assert verdict(BASE, Run(ran("launch", 0, lines), BASE.names, "torch")) == (1, 0, 0)


def test_a_job_behind_a_firewall_runs_or_names_the_unreachable_rank():
    ring = (*CHAIN, ("c", "a"))
    closed = with_fault(Fault.CLOSED_PORTS, cables=ring)
    assert verdict(closed, job()) == (0, 0, 0)
    assert verdict(closed, job(result="7")) == (1, 0, 0)
    assert verdict(closed, job(status=1, err="could not connect to rank 1 in time")) == (0, 0, 0)
    other = job(status=1, err="rank 2 has not connected")
    assert verdict(closed, other) == (0, 1, 0)
    # In a chain the victim separates the other two.
    assert verdict(with_fault(Fault.CLOSED_PORTS), other) == (0, 0, 0)


@pytest.mark.parametrize(
    ("error", "names"),
    [
        ("rank 2 could not connect to rank 0 within 9 s", {"a"}),
        ("could not reach the store of rank 1 at", {"b"}),
        ("for all ranks: ranks 1 and 2 have not arrived; 0 has", {"b", "c"}),
        ("rank 2 waited 9 s: rank 0 has not connected; can they reach port 5 of this "
         "rank (firewall; MCCL_PORT_BASE fixes the port)?", {"a", "c"}),
        ("rank 1 of 3 on b exited with status 1", set()),
    ],
)  # fmt: skip
def test_unreachable_ranks_are_parsed(error: str, names: set):
    assert unreached_ranks(job(status=1, err=error)) == names


def test_leftover_processes_are_a_fault():
    assert verdict(BASE, doctor(), left=("sleep at a",)) == (1, 0, 0)


def test_config_must_name_the_host_that_does_not_answer():
    error = "some hosts cannot be queried:\n  {}: the host cannot be reached"

    def told(name: str) -> Config:
        answer = {"error": error.format(name)}
        return Config(ran("config", 1, answer), BASE.names, True, False)

    assert verdict(DOWN, told("b")) == (0, 0, 0)
    assert verdict(DOWN, told("c")) == (1, 1, 0)


@pytest.mark.parametrize(
    ("where", "places"),
    [
        ("a", (("a", ""),)),
        ("b (c0), a (c1)", (("a", "c1"), ("b", "c0"))),
        ("b (c1) to a", (("b", "c1"), ("a", ""))),
        ("a, b | c", (("a", ""), ("b", ""), ("c", ""))),
        ("a 0.1.0, b 0.0.7", (("a", ""), ("b", ""))),
    ],
)
def test_places_are_read(where: str, places: tuple):
    assert places_of(where) == places


def test_notes_on_the_machine_are_left_out():
    said = {"findings": [finding("load-high", "a"), finding("no-ring", "a, b")]}
    assert findings_of(ran("config", 0, said)) == {at("no-ring", "a", "b")}


def test_each_fault_has_its_findings():
    """Findings of doctor on a chain with addresses and a common network, where b has the fault."""
    expected = {
        Fault.NONE: set(),
        Fault.NO_MCCL: {at("mccl-unusable", "b")},
        Fault.OTHER_BUILD: {at("mccl-unusable", "b")},
        Fault.OTHER_VERSION: {at("version-differs", "a", "b", "c")},
        Fault.SLOW_HOST: set(),
        Fault.HANGING: {at("host-unreachable", "b")},
        Fault.NOISY: set(),
        Fault.CLOSED_CALLS: {at("calls-blocked", ("b", i)) for i in ("c0", "c1", "cable")},
        Fault.CLOSED_PORTS: {
            Finding("path-blocked", ((source, interface), ("b", "")))
            for source, interface in (("a", "c0"), ("c", "c1"), ("a", "cable"), ("c", "cable"))
        },
        Fault.DOWN: {at("host-unreachable", "b"), at("cable-cut", "a"), at("cable-cut", "c")},
    }
    found = {fault: of_doctor(with_fault(fault), BASE.names, {0, 1}).must for fault in expected}
    assert found == expected
    slow = with_fault(Fault.SLOW_LINK, interface="c1")
    path = Finding("path-slow", (("b", "c1"), ("c", "c1")))
    assert of_doctor(slow, BASE.names, {0, 1}).must == {path}


def test_a_lost_hub_leaves_parts_where_there_is_no_network():
    apart = with_fault(Fault.HANGING, apart=True)
    assert at("hosts-apart", "a", "c") in of_doctor(apart, BASE.names, {0, 1}).must
    assert not of_config(apart, ("a", "c"), True).hostfile


def test_jobs_that_must_not_run():
    refused = {fault for fault in Fault if of_job(with_fault(fault), BASE.names) == Job.REFUSED}
    assert refused == {Fault.DOWN, Fault.NO_MCCL, Fault.HANGING}
    assert of_job(with_fault(Fault.DOWN), ("a", "c")) == Job.GOOD


@pytest.mark.parametrize(
    ("over", "apart", "names", "shape"),
    [
        ("", False, "abc", Shape.NETWORK),
        ("", True, "abc", Shape.CABLES),
        ("cables", False, "abc", Shape.CABLES),
        ("cables", False, "ac", Shape.NOTHING),
        ("ethernet", False, "ab", Shape.NETWORK),
        ("", False, "ab", Shape.RING),
        ("", True, "ac", Shape.NOTHING),
    ],
)
def test_shapes(over: str, apart: bool, names: str, shape: Shape):
    trial = dataclasses.replace(BASE, over=over, apart=apart)
    assert shape_of(trial, names) == shape


def test_rings_equal_those_that_brute_force_finds():
    rng = random.Random(5)
    answers = set()
    for _ in range(200):
        names = "abcdef"[: rng.randint(3, 6)]
        pairs = list(itertools.combinations(names, 2))
        cables = rng.sample(pairs, rng.randint(0, len(pairs)))
        near = {frozenset(cable) for cable in cables}
        tried = any(
            all(frozenset(pair) in near for pair in zip(order, order[1:] + order[:1], strict=True))
            for order in itertools.permutations(names)
        )
        answers.add(tried)
        assert has_ring(names, cables) == tried, cables
    assert answers == {True, False}


def test_connected_parts_of_a_graph():
    assert parts("abcd", [("a", "c"), ("d", "x")]) == [["a", "c"], ["b"], ["d"]]
    assert joined("abc", CHAIN) and not joined("abc", CHAIN[:1])


def test_trials_are_reproducible_and_of_every_kind():
    trials = [draw(seed) for seed in range(300)]
    assert trials == [draw(seed) for seed in range(300)]
    assert {t.fault for t in trials} == set(Fault) and {t.cabling for t in trials} == set(Cabling)
    assert {min(len(t.names) for t in trials), max(len(t.names) for t in trials)} == {2, 16}
    assert sum(t.fault == Fault.NONE for t in trials) == 100
    few = trials[:50]
    assert {t.fault for t in few} == set(Fault) and {t.cabling for t in few} == set(Cabling)
    assert {min(len(t.names) for t in few), max(len(t.names) for t in few)} == {2, 16}
    for trial in trials:
        assert joined(trial.names, trial.cables) or trial.cabling == Cabling.NONE
        assert not (trial.apart and trial.cabling == Cabling.NONE)


def test_the_table_and_the_status(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(ssh_hosts, "missing", lambda: "")

    def made(step: object) -> None:
        def run(seed: int) -> campaign.Result:
            said = Said(doctors=[step])
            return campaign.Result(BASE, said, judge(BASE, said), 1.0)

        monkeypatch.setattr(campaign, "run", run)

    made(doctor())
    assert campaign.main(["--trials", "3"]) == 0
    text = capsys.readouterr().out
    assert "3 trials in 3 s: 0 wrong findings, 0 missed findings, 0 hangs" in text
    made(doctor(finding("cable-cut", "a"), status=1))
    assert campaign.main(["--trials", "2"]) == 1
    assert "2 wrong findings" in capsys.readouterr().out


@pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
@pytest.mark.parametrize("seed", [29, pytest.param(46, marks=pytest.mark.long)])
def test_a_trial(seed: int):
    pytest.importorskip("torch")
    pytest.importorskip("mlx.core")
    result = campaign.run(seed)
    assert campaign.complaints(result.verdict) == [], result.trial
