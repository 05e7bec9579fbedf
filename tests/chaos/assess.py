"""Compares the outcome of a trial with what its fault must lead to."""

import re
from collections.abc import Set
from dataclasses import dataclass, field

from job import Outcome
from mpi import ENDED_BY_MPIRUN
from scenario import (
    ABORTS,
    CONNECT_TIMEOUT,
    DEATHS,
    HARMLESS,
    OMITTED_TIMEOUT,
    OPTIONAL,
    SILENCES,
    TIMED,
    Face,
    Fault,
    Moment,
    Scenario,
)

#: Seconds within which a death is noticed that the kernel reports, and within which a silent rank
#: is given up after the liveness interval.
AFTER_DEATH, AFTER_SILENCE = 1.0, 0.5
#: Seconds that a call waits before its ranks compare their calls, where the data do not show that
#: they differ (kProbeAfter in src/engine/groups/group_time.cpp).
COMPARED = 1.0
#: Seconds that rank 0 may stay, after the ranks have not met, to tell an absent rank why.
LAST_WORDS = 5.0
#: Seconds for which a rank waits for MPI to end a call that has failed (docs/mpi.md).
ABANDONED = 1.0
#: Share of the interval by which a rank is given up later if its messages pass through others.
RELAYED = 0.4
_KINDS = {
    Fault.ABORT: {"AbortedError"},
    Fault.DISK: {"AbortedError"},
    Fault.MISMATCH: {"MismatchError"},
    # A receive that times out fails alone. Its rank then aborts.
    Fault.OMIT: {"TimeoutError", "AbortedError"},
    Fault.STARVE: {"TimeoutError", "AbortedError"},
    # A rank that leaves ends only the messages that need it. The first rank to notice then aborts.
    Fault.LEAVE: {"PeerError", "AbortedError"},
}


@dataclass
class Verdict:
    hangs: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    #: Results that were returned as good.
    wrong: list[str] = field(default_factory=list)
    #: Errors of another type than they should be, or that name another rank.
    misnamed: list[str] = field(default_factory=list)
    #: Errors that came after their bound and the allowance.
    late: list[str] = field(default_factory=list)
    #: Survivors that could not go on, and files that were left.
    unrecovered: list[str] = field(default_factory=list)
    #: Seconds from the fault to the error of each survivor.
    times: list[float] = field(default_factory=list)
    #: Number of errors that came after their bound, but within the allowance.
    beyond: int = 0

    @property
    def complaints(self) -> dict[str, list[str]]:
        kinds = ("hangs", "crashes", "wrong", "misnamed", "late", "unrecovered")
        return {kind: texts for kind in kinds if (texts := getattr(self, kind))}


def bound(scenario: Scenario) -> float:
    """Returns the seconds from the fault within which every survivor raises."""
    if scenario.face == Face.MPI:
        silent = scenario.liveness_interval if scenario.fault in SILENCES else 0
        return AFTER_DEATH + silent + ABANDONED
    if scenario.moment == Moment.MEETING:
        return CONNECT_TIMEOUT + LAST_WORDS
    if scenario.fault in SILENCES:
        relayed = RELAYED * scenario.liveness_interval if scenario.cabled else 0
        return scenario.liveness_interval + AFTER_SILENCE + relayed
    if scenario.fault == Fault.MISMATCH:
        return COMPARED + AFTER_SILENCE
    if scenario.fault in TIMED:
        return OMITTED_TIMEOUT + 0.1
    return AFTER_DEATH


def assess(outcome: Outcome, allowance: float) -> Verdict:
    """Returns what is wrong with the outcome. `allowance`: seconds by which errors may be late."""
    verdict = Verdict(hangs=list(outcome.hangs))
    verdict.wrong += [f"rank {e['rank']}: {e['text']}" for e in outcome.of("wrong")]
    verdict.wrong += _digests(outcome)
    verdict.crashes += _crashes(outcome)
    for error in outcome.of("error"):
        _assess_error(outcome, error, verdict, allowance)
    _assess_recovery(outcome, verdict)
    # Forked ranks end without the steps at exit that remove the key file. The next job removes it.
    verdict.unrecovered += [f"/dev/shm/{n} is left" for n in outcome.left if "-key-" not in n]
    return verdict


def _digests(outcome: Outcome) -> list[str]:
    """Compares the results of all_reduce with those of the other ranks."""
    found: dict[str, set[int]] = {}
    for event in outcome.of("digest"):
        found.setdefault(f"{event['call']} {event['place']}", set()).add(event["digest"])
    return [f"{call}: results differ" for call, each in found.items() if len(each) > 1]


def _crashes(outcome: Outcome) -> list[str]:
    scenario = outcome.scenario
    texts = [f"rank {e['rank']}: {e['kind']}: {e['text']}" for e in outcome.of("broken")]
    broken = {e["rank"] for e in outcome.of("broken")}
    killed = scenario.fault in DEATHS or scenario.fault == Fault.STOP
    for rank, code in outcome.codes.items():
        may_end = rank == scenario.victim and (killed or scenario.fault == Fault.LEAVE)
        may_end |= code == ENDED_BY_MPIRUN and bool(outcome.of("error"))
        if code != 0 and not may_end and rank not in broken and not outcome.hangs:
            texts.append(f"rank {rank} ended with {code}")
    return texts


def _assess_error(outcome: Outcome, error: dict, verdict: Verdict, allowance: float) -> None:
    scenario, rank = outcome.scenario, error["rank"]
    here = f"rank {rank}: {error['kind']}: {error['text']}"
    if scenario.fault in HARMLESS:
        verdict.misnamed.append(here)
        return
    if rank == scenario.victim and scenario.fault not in ABORTS | {Fault.MISMATCH}:
        return  # it may name any other rank, and is told late
    if scenario.fault not in OPTIONAL or scenario.moment == Moment.MEETING:
        _assess_time(outcome, error, verdict, allowance)
    if not names_well(scenario, rank, error["kind"], error["text"], _unmet(outcome)):
        verdict.misnamed.append(here)


def _assess_time(outcome: Outcome, error: dict, verdict: Verdict, allowance: float) -> None:
    scenario = outcome.scenario
    starts = outcome.of("began", error["rank"]) or outcome.of("fault")
    if not starts:
        return
    seconds = error["at"] - starts[-1]["at"]
    verdict.times.append(seconds)
    most = bound(scenario) + (CONNECT_TIMEOUT if _was_never_heard(outcome) else 0)
    if seconds > most + allowance:
        verdict.late.append(f"rank {error['rank']} raised after {seconds:.2f} s, not {most:g} s")
    elif seconds > most:
        verdict.beyond += 1


def _was_never_heard(outcome: Outcome) -> bool:
    """Returns whether the victim may have fallen silent before its first heartbeat.

    It may then be meeting other ranks still, for which it has the connect timeout.
    """
    if outcome.scenario.fault not in SILENCES:
        return False
    met = max((event["at"] for event in outcome.of("met")), default=0.0)
    return outcome.of("fault")[0]["at"] < met + outcome.scenario.liveness_interval / 10


def _unmet(outcome: Outcome) -> set[int]:
    """Returns the ranks whose meeting failed, although others had met already.

    Rank 0 may die before the last rank has met. That rank then leaves, and others may notice this
    before the death.
    """
    met = {event["rank"] for event in outcome.of("met")}
    return {e["rank"] for e in outcome.of("error")} - met if met else set()


def names_well(
    scenario: Scenario, rank: int, kind: str, text: str, unmet: Set[int] = frozenset()
) -> bool:
    """Returns whether an error is of the right type and names the rank that is at fault.

    The ranks `unmet` may be named, too.
    """
    if scenario.moment == Moment.MEETING:
        return kind in ("PeerError", "TimeoutError") and names(text, scenario.victim)
    if scenario.fault in ABORTS:
        return kind == "AbortedError" and f"reason {scenario.seed}" in text
    typed = scenario.face in (Face.NUMPY, Face.CPP, Face.MPI) and scenario.fault not in OPTIONAL
    if typed and kind not in _KINDS.get(scenario.fault, {"PeerError"}):
        return False
    if scenario.fault == Fault.STARVE:
        # Data pass from rank to rank, and a rank knows only from which ranks it waits for data.
        return any(names(text, other) for other in range(scenario.size))
    gone = set(re.findall(r"\brank (\d+) is gone", text))
    if scenario.fault in OPTIONAL:
        # A group that some ranks could not make ends for the others without a reason.
        return names(text, scenario.victim) or "it has destroyed this group" in text
    # Ranks that are reached through the victim are gone too. The message then names the cable.
    may_be_gone = {scenario.victim, *unmet}
    named = any(names(text, each) for each in may_be_gone)
    return named and (scenario.cabled or gone <= set(map(str, may_be_gone)))


def names(text: str, rank: int) -> bool:
    """Returns whether the text contains the number of the rank in "rank 1" or "ranks 0 and 1"."""
    lists = re.findall(r"\branks? (\d+(?:(?:, | and |, and )\d+)*)", text)
    return any(str(rank) in re.findall(r"\d+", each) for each in lists)


def _assess_recovery(outcome: Outcome, verdict: Verdict) -> None:
    scenario = outcome.scenario
    gone = scenario.fault in DEATHS | SILENCES or scenario.fault == Fault.LEAVE
    expected = scenario.size - len(_unmet(outcome) | ({scenario.victim} if gone else set()))
    if not may_go_on(scenario):
        return
    verdict.unrecovered += [
        f"rank {e['rank']} cannot go on: {e['kind']}: {e['text']}" for e in outcome.of("lost")
    ]
    verdict.unrecovered += [
        f"rank {e['rank']} goes on in a group of {e['size']} instead of {expected}"
        for e in outcome.of("recovered")
        if e["size"] != expected
    ]


def may_go_on(scenario: Scenario) -> bool:
    """Returns whether the survivors may shrink their group.

    A silent victim may go on elsewhere. Of two ranks, only the first may then go on. Along cables,
    ranks may have reached each other only through the victim, and are then not found again.
    """
    alone = scenario.fault in SILENCES and scenario.size == 2 and scenario.victim == 0
    return not (alone or scenario.cabled)
