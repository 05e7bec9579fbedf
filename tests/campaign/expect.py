"""The expected output of mccl in a trial, derived only from the hosts, cables and fault it made."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from graph import has_ring, joined
from trial import FATAL, UNASKABLE, Fault, Trial

#: A host and one of its interfaces. "" stands for the host as a whole.
Place = tuple[str, str]

#: Fewest measured rates of one kind that `mccl doctor` compares.
FEWEST_RATES = 4


@dataclass(frozen=True, order=True)
class Finding:
    """The id of a finding and the hosts it names. The source of a direction is named first."""

    id: str
    places: tuple[Place, ...]

    def __str__(self) -> str:
        return f"{self.id} at {', '.join(f'{h} ({i})' if i else h for h, i in self.places)}"


def at(id: str, *places: str | Place) -> Finding:
    return Finding(id, tuple(sorted((p, "") if isinstance(p, str) else p for p in places)))


@dataclass(frozen=True)
class Way:
    """One direction between two hosts that have addresses in a common network."""

    source: Place
    target: str

    def finding(self, id: str, ends: int = 1) -> Finding:
        """Returns a finding on this direction.

        `ends` is the number of ends whose interface it names: 2 for both, 1 for the source, 0 for
        none.
        """
        interface = self.source[1]
        return Finding(
            id,
            (
                (self.source[0], interface if ends > 0 else ""),
                (self.target, interface if ends > 1 else ""),
            ),
        )


@dataclass
class Expected:
    """The findings that a command should report.

    It must report all of `must` and, unless `any_of` is empty, at least one of `any_of`. It may
    report those of `may`. Any other finding is wrong.
    """

    must: set[Finding] = field(default_factory=set)
    any_of: set[Finding] = field(default_factory=set)
    may: set[Finding] = field(default_factory=set)
    #: Whether `mccl config` should write a hostfile. None if both are correct. Unused for doctor.
    hostfile: bool | None = None


class Shape(Enum):
    """The kind of connection between the hosts of a hostfile."""

    RING = auto()
    CABLES = auto()
    NETWORK = auto()
    NOTHING = auto()


class Job(Enum):
    GOOD = auto()
    REFUSED = auto()
    #: A firewall lets ranks connect in one direction, so the job may succeed or fail.
    EITHER = auto()


def unaskable(trial: Trial) -> set[str]:
    return {trial.victim} if trial.fault in UNASKABLE else set()


def of_job(trial: Trial, names: Iterable[str]) -> Job:
    if trial.victim not in names:
        return Job.GOOD
    if trial.fault == Fault.CLOSED_PORTS:
        return Job.EITHER
    return Job.REFUSED if trial.fault in FATAL else Job.GOOD


def shape_of(trial: Trial, names: Iterable[str]) -> Shape:
    """Returns the choice that docs/machines/cables.md describes for hosts that all answer."""
    names, cables = list(names), trial.cables
    if len(names) == 1:
        return Shape.RING
    if trial.over != "ethernet":
        if has_ring(names, cables):
            return Shape.RING
        if joined(names, cables) and (trial.over or trial.apart):
            return Shape.CABLES
    return Shape.NOTHING if trial.apart or trial.over == "cables" else Shape.NETWORK


def of_config(trial: Trial, names: Iterable[str], planted: bool) -> Expected:
    """Returns the expectations for `mccl config` on these hosts.

    `planted` tells whether the fault is already present.
    """
    names = sorted(names)
    fault = trial.fault if planted and trial.victim in names else Fault.NONE
    if fault in UNASKABLE:
        return Expected(hostfile=False)  # config refuses and gives the reason in its error
    shape = shape_of(trial, names)
    expected = Expected(hostfile=shape != Shape.NOTHING)
    if shape == Shape.CABLES:
        expected.must.add(at("no-ring", *names))
    if shape == Shape.NOTHING:
        expected.must.add(at("no-network" if trial.over == "ethernet" else "no-ring", *names))
    looks = shape in (Shape.CABLES, Shape.NOTHING) and trial.over != "ethernet"
    if looks and (ends := _ends_elsewhere(trial, names)):
        # config cannot know that these cables lead to hosts that were not asked about.
        expected.may.add(at("calls-silent", *ends))
    every_way = ways(trial, names, range(len(trial.cables)))
    if fault == Fault.CLOSED_PORTS and expected.hostfile:
        dead = {w.finding("link-dead", ends=0) for w in every_way if w.target == trial.victim}
        expected.any_of = dead
    if fault == Fault.CLOSED_CALLS:
        # Whether the cables to the victim are found nevertheless depends on their addresses.
        expected.hostfile = None
        expected.must, expected.any_of = set(), _blocked_calls(trial)
        expected.may |= {at("no-ring", *names), at("no-network", *names)}
    return expected


def of_doctor(trial: Trial, names: Iterable[str], addressed: Iterable[int]) -> Expected:
    """Returns the expectations for `mccl doctor` on these hosts, with the fault planted.

    `addressed` holds the cables that have addresses.
    """
    victim, fault = trial.victim, trial.fault
    reached = sorted(set(names) - unaskable(trial))
    must = {at(_id_of_unaskable(fault), name) for name in unaskable(trial) & set(names)}
    if fault == Fault.DOWN:
        ends = {name for k in addressed for name in trial.cables[k] if victim in trial.cables[k]}
        must |= {at("cable-cut", name) for name in ends - {victim}}
    if len(reached) < 2:
        return Expected(must)
    must |= _cables_without_addresses(trial, reached, set(addressed))
    open_ways = ways(trial, reached, addressed)
    match fault:
        case Fault.OTHER_VERSION:
            must.add(at("version-differs", *reached))
        case Fault.CLOSED_PORTS:
            must |= {w.finding("path-blocked") for w in open_ways if w.target == victim}
        case Fault.CLOSED_CALLS:
            must |= _blocked_calls(trial)
        case Fault.SLOW_LINK if len(open_ways) >= FEWEST_RATES:
            slow = (victim, trial.interface)
            must |= {w.finding("path-slow", ends=2) for w in open_ways if w.source == slow}
    if trial.apart and not joined(reached, trial.cables):
        must.add(at("hosts-apart", *reached))
    return Expected(must)


def ways(trial: Trial, names: Iterable[str], addressed: Iterable[int]) -> list[Way]:
    """Returns all directions between these hosts. None of the hosts may be down."""
    names = set(names)
    found = []
    if not trial.apart:
        found += [Way((a, "cable"), b) for a in names for b in names if a != b]
    for k in addressed:
        a, b = trial.cables[k]
        if names >= {a, b}:
            found += [Way((a, f"c{k}"), b), Way((b, f"c{k}"), a)]
    return found


def _ends_elsewhere(trial: Trial, names: Iterable[str]) -> list[Place]:
    """Returns the ends, at these hosts, of cables to other hosts that are not down."""
    names = set(names)
    off = {trial.victim} if trial.fault == Fault.DOWN else set()
    return [
        (name, f"c{k}")
        for k, ends in enumerate(trial.cables)
        for name in names & set(ends)
        if set(ends) - names - off
    ]


def _id_of_unaskable(fault: Fault) -> str:
    return "host-unreachable" if fault in (Fault.DOWN, Fault.HANGING) else "mccl-unusable"


def _cables_without_addresses(
    trial: Trial, reached: list[str], addressed: set[int]
) -> set[Finding]:
    """Returns a finding for each cable that has no addresses and whose ends receive each other's
    calls.
    """
    deaf = {trial.victim} if trial.fault == Fault.CLOSED_CALLS else set()
    return {
        at("cable-without-address", (a, f"c{k}"), (b, f"c{k}"))
        for k, (a, b) in enumerate(trial.cables)
        if k not in addressed and {a, b} <= set(reached) - deaf
    }


def _blocked_calls(trial: Trial) -> set[Finding]:
    """Returns a finding for each interface that connects the victim to other hosts."""
    own = [f"c{k}" for k, ends in enumerate(trial.cables) if trial.victim in ends]
    own += [] if trial.apart else ["cable"]
    return {at("calls-blocked", (trial.victim, each)) for each in own}
