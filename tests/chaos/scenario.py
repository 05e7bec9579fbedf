"""One trial as a value: ranks, settings, calls, and the fault that one of them suffers."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import traffic
from disk import FOLDER
from traffic import Call


class Fault(StrEnum):
    """Every fault happens to one rank, the victim."""

    NONE = "none"
    KILL = "killed"
    SEGV = "segmentation fault"
    EXIT = "exit without goodbye"
    LEAVE = "exception"
    STOP = "stopped"
    PAUSE = "paused"
    CUT = "cut network"
    LAPSE = "short cut"
    DOWN = "interface down for a while"
    HALF = "packets lost one way"
    CRAWL = "slow network for a while"
    STARVE = "network too slow for the timeout"
    RESET = "reset connections"
    ABORT = "abort"
    MISMATCH = "other call"
    OMIT = "call left out"
    FILES = "few descriptors"
    MEMORY = "no memory"
    SIZE = "limited files"
    SHM = "full shared memory folder"
    DISK = "abort with a full disk"


class Moment(StrEnum):
    MEETING = "while ranks meet"
    BETWEEN = "between calls"
    FLIGHT = "calls in flight"
    INSIDE = "inside a call"


class Face(StrEnum):
    """The interface through which the ranks call."""

    NUMPY = "numpy"
    TORCH = "torch"
    MLX = "mlx"
    CPP = "c++"
    #: C++ on the mpi backend.
    MPI = "mpi"


#: How often each fault is drawn. Stopped ranks and cut networks take the liveness interval.
WEIGHTS = {
    Fault.KILL: 20, Fault.SEGV: 7, Fault.EXIT: 8, Fault.LEAVE: 7, Fault.STOP: 9,
    Fault.PAUSE: 7, Fault.CUT: 5, Fault.LAPSE: 3, Fault.DOWN: 2, Fault.RESET: 4,
    Fault.ABORT: 9, Fault.MISMATCH: 10,
    Fault.OMIT: 5, Fault.FILES: 6, Fault.MEMORY: 4,
    Fault.HALF: 4, Fault.CRAWL: 2, Fault.STARVE: 2, Fault.SIZE: 2, Fault.SHM: 2, Fault.DISK: 3,
}  # fmt: skip
#: Share of the trials that have no fault. They do not count as faults.
HEALTHY = 0.03
SIZES = {2: 26, 3: 22, 4: 22, 5: 10, 6: 8, 7: 5, 8: 7}
#: Faults that end the process of the victim, and those after which it stays silent.
DEATHS = frozenset({Fault.KILL, Fault.SEGV, Fault.EXIT})
SILENCES = frozenset({Fault.STOP, Fault.CUT, Fault.HALF})
#: Trials with these faults need network namespaces, hence root.
NETWORKED = frozenset(
    {Fault.CUT, Fault.LAPSE, Fault.DOWN, Fault.RESET, Fault.HALF, Fault.CRAWL, Fault.STARVE}
)
#: Faults of trials whose disk is full, which needs root.
FULL = frozenset({Fault.SHM, Fault.DISK})
#: Faults of which no call may notice anything.
HARMLESS = frozenset(
    {Fault.NONE, Fault.PAUSE, Fault.LAPSE, Fault.DOWN, Fault.RESET, Fault.CRAWL, Fault.SHM}
)
#: Faults that end when the group is aborted.
ABORTS = frozenset({Fault.ABORT, Fault.DISK})
#: Faults that the victim commits with the call itself.
WRONG_CALLS = frozenset({Fault.MISMATCH, Fault.OMIT})
#: Faults for which the calls have a short timeout. Ranks in C++ do not set it.
TIMED = frozenset({Fault.OMIT, Fault.STARVE})
#: Faults of the network under which heartbeats are late, too. They have the default interval.
SLOW = frozenset({Fault.CRAWL, Fault.STARVE})
#: Faults that trials of torch and MLX have.
FOR_FRAMEWORKS = DEATHS | {Fault.NONE, Fault.STOP, Fault.PAUSE}
#: Faults that ranks in C++ have.
FOR_CPP = FOR_FRAMEWORKS | (NETWORKED - TIMED) | ABORTS | {Fault.LEAVE, Fault.MISMATCH, Fault.SHM}
#: Faults of trials on the mpi backend, and the largest number of their ranks.
FOR_MPI = FOR_FRAMEWORKS | {Fault.LEAVE, Fault.ABORT, Fault.MISMATCH}
MOST_OF_MPI = 4
#: Faults of trials along cables, which need as many ranks as the ring has hosts.
FOR_CABLES = FOR_FRAMEWORKS | {Fault.ABORT, Fault.MISMATCH, Fault.DOWN, Fault.RESET}
RING = 4
#: Faults for which the program may also go on unharmed.
OPTIONAL = frozenset({Fault.FILES, Fault.MEMORY, Fault.SIZE})
#: Steps of a program for which descriptors or files are limited. Only ranks in C++ make groups from
#: lists of ranks.
SCENES = ("meeting", "group", "split", "shrink", "repair")

ALGORITHMS = (
    "auto", "auto", "auto", "auto", "ring", "ring_both", "direct", "recursive_doubling",
    "binomial_tree", "chain", "pairwise", "two_shot",
)  # fmt: skip
#: The usual interval of the campaign, and the library's default.
SHORT_INTERVAL, DEFAULT_INTERVAL = 1.0, 10.0
CONNECT_TIMEOUT = 5.0
#: Timeout of the call that a rank leaves out.
OMITTED_TIMEOUT = 0.4


@dataclass(frozen=True)
class Scenario:
    seed: int
    size: int
    fault: Fault
    victim: int
    moment: Moment
    #: The step at which the fault happens. Steps are drawn from the seed, one after the other.
    step: int
    #: Seconds from the start of the step to a fault inside it; length of a pause or short cut.
    delay: float
    transport: str
    algorithm: str
    compression: str
    encryption: bool
    calibrate: bool
    liveness_interval: float
    #: How the victim's call differs; empty for other faults than MISMATCH.
    difference: str
    #: A stopped victim continues after the others have given it up.
    wakes: bool
    face: Face
    #: The step for which descriptors or files are limited, one of SCENES; else empty.
    scene: str
    #: Descriptors or pages that are left; the exponent of the largest size of a file.
    spare: int
    #: Direction of the packets that are lost, "from" or "to" the victim; empty: both.
    direction: str
    #: The rate of a slow network.
    rate: str
    #: Cables in a ring join the ranks, which reach only their neighbours.
    cabled: bool

    @property
    def needs_hosts(self) -> bool:
        return self.cabled or self.is_networked

    @property
    def is_networked(self) -> bool:
        """True if the job commits the fault, in the network."""
        return self.fault in NETWORKED or self.scene == "repair"

    @property
    def needs_root(self) -> bool:
        return self.needs_hosts or self.fault in FULL

    @property
    def steps(self) -> int:
        """The number of steps of a program that no fault ends."""
        return self.step + 4

    @property
    def settings(self) -> dict[str, object]:
        secret = {"encryption": "on"} if self.encryption else {}
        if self.encryption or self.needs_hosts:
            secret["job_key"] = "5" * 32
        logs = {}
        if self.fault == Fault.DISK:
            logs = {"log_file": f"{FOLDER}/log.%r", "flight_recorder_file": f"{FOLDER}/"}
            logs["log_level"] = "DEBUG"
        return {
            "transport": self.transport,
            "algorithm": self.algorithm,
            "compression": self.compression,
            "compression_min_bytes": 1024,
            "calibrate": self.calibrate,
            "liveness_interval": self.liveness_interval,
            "connect_timeout": CONNECT_TIMEOUT,
            "timeout": 120.0,
            # Neighbours in the ring would otherwise use its cables, too.
            **({"ifname": "cable"} if self.fault in SLOW else {}),
            **secret,
            **logs,
            **({"backend": "mpi"} if self.face == Face.MPI else {}),
        }

    def calls(self, step: int) -> list[Call]:
        """Returns the calls of a step, the same on every rank."""
        calls = self._draw_calls(step)
        similar = {
            Face.NUMPY: lambda call: call,
            Face.CPP: traffic.for_cpp,
            Face.MPI: traffic.for_cpp,
        }
        return [similar.get(self.face, traffic.for_framework)(call) for call in calls]

    def _draw_calls(self, step: int) -> list[Call]:
        source = random.Random(f"{self.seed} {step}")
        if step == self.step and self.fault in WRONG_CALLS:
            return [traffic.draw_that_differs(source, self.size, self.difference)]
        large = self.fault in OPTIONAL or self.fault == Fault.STARVE
        if step == self.step and large and self.moment != Moment.MEETING:
            return [traffic.draw_collective(source, self.size, smallest=1 << 20)]
        many = source.choice((1, 1, 1, 2, 3, 5))
        if step == self.step and self.moment == Moment.FLIGHT:
            many = source.choice((2, 3, 5))
        return [traffic.draw(source, self.size, small=many > 1) for _ in range(many)]

    def __str__(self) -> str:
        extra = [self.face] * (self.face != Face.NUMPY)
        extra += [self.algorithm] * (self.algorithm != "auto")
        extra += [self.compression] * (self.compression != "none")
        extra += ["encrypted"] * self.encryption + [self.difference] * bool(self.difference)
        details = (self.scene, f"{self.spare} left" if self.scene else "", self.rate)
        extra += [text for text in details if text] + [f"only {self.direction} it"] * bool(
            self.direction
        )
        extra += [f"interval {self.liveness_interval:g} s"] * (
            self.liveness_interval != SHORT_INTERVAL
        )
        network = " ".join(["cables" if self.cabled else self.transport, *extra])
        if self.fault == Fault.NONE:
            return f"{self.size} ranks, {network}: no fault"
        return (
            f"{self.size} ranks, {network}: rank {self.victim} {self.fault} "
            f"{self.moment}, step {self.step}"
        )


def chosen(first: int, faults: int) -> Iterator[int]:
    """Yields seeds from the first on, until that many of their trials have a fault."""
    for seed in itertools.count(first):
        if faults == 0:
            return
        faults -= draw(seed).fault != Fault.NONE
        yield seed


def draw(seed: int) -> Scenario:
    """Returns the scenario of this seed, which depends on nothing else."""
    source = random.Random(seed)
    pick = lambda weights: source.choices(list(weights), list(weights.values()))[0]  # noqa: E731
    fault = Fault.NONE if source.random() < HEALTHY else pick(WEIGHTS)
    size = pick(SIZES)
    transport = source.choice(("shm", "tcp", "tcp", "auto"))
    scene = {Fault.FILES: source.choice(SCENES), Fault.SIZE: "split"}.get(fault, "")
    if fault in NETWORKED or scene == "repair":
        transport, size = "tcp", min(size, 4)
    moment = Moment.MEETING if scene == "meeting" else _moment(source, fault)
    lossy = transport == "tcp" and source.random() < 0.3
    may_be_cabled = size == RING and transport == "tcp" and fault in FOR_CABLES
    scenario = Scenario(
        seed=seed,
        size=size,
        fault=fault,
        victim=source.randrange(size),
        moment=moment,
        step=source.choice((0, 1, 2, 3, 5, 8, 13, 21)),
        delay=_delay(source, fault),
        transport=transport,
        algorithm=source.choice(ALGORITHMS),
        compression=source.choice(("fp16", "bf16", "int8")) if lossy else "none",
        encryption=transport == "tcp" and source.random() < 0.25,
        calibrate=source.random() < 0.1,
        liveness_interval=DEFAULT_INTERVAL
        if source.random() < 0.04 or fault in SLOW
        else SHORT_INTERVAL,
        difference=source.choice(traffic.DIFFERENCES) if fault == Fault.MISMATCH else "",
        wakes=fault == Fault.STOP and source.random() < 0.5,
        scene=scene,
        spare=int((24 if fault == Fault.FILES else 12) * source.random() ** 2),
        direction=_direction(source, fault),
        rate=_rate(source, fault),
        face=Face.CPP if scene == "group" else _face(source, fault, moment),
        cabled=False,
    )
    cabled = may_be_cabled and moment != Moment.MEETING and source.random() < 0.5
    scenario = replace(scenario, cabled=cabled and scenario.face in (Face.NUMPY, Face.CPP))
    may_be_of_mpi = scenario.face == Face.CPP and fault in FOR_MPI and not scenario.cabled
    if may_be_of_mpi and moment != Moment.MEETING and size <= MOST_OF_MPI:
        return _on_mpi(scenario) if source.random() < 0.2 else scenario
    return scenario


def _on_mpi(scenario: Scenario) -> Scenario:
    """Returns the scenario on the mpi backend, without settings that it ignores.

    A death before MPI has made the group's communicator would hang the others (docs/mpi.md).
    """
    return replace(
        scenario, face=Face.MPI, transport="auto", algorithm="auto", compression="none",
        encryption=False, calibrate=False, step=max(scenario.step, 2),
    )  # fmt: skip


def _face(source: random.Random, fault: Fault, moment: Moment) -> Face:
    """Returns an interface that has the fault."""
    weights = {Face.NUMPY: 60}
    if fault in FOR_CPP:
        weights[Face.CPP] = 20
    if fault in FOR_FRAMEWORKS and moment != Moment.MEETING:
        weights |= {Face.TORCH: 10, Face.MLX: 9}
    return source.choices(list(weights), list(weights.values()))[0]


def _moment(source: random.Random, fault: Fault) -> Moment:
    """Returns a moment that the fault allows."""
    if fault == Fault.SHM:
        return Moment.MEETING
    if fault in WRONG_CALLS | OPTIONAL | {Fault.NONE, Fault.STARVE}:
        return Moment.BETWEEN
    if fault == Fault.LEAVE:
        return source.choice((Moment.BETWEEN, Moment.FLIGHT))
    if fault in DEATHS and source.random() < 0.12:
        return Moment.MEETING
    return source.choice((Moment.BETWEEN, Moment.FLIGHT, Moment.INSIDE, Moment.INSIDE))


def _rate(source: random.Random, fault: Fault) -> str:
    if fault == Fault.STARVE:
        return "100kbit"
    return source.choice(("100kbit", "1mbit", "10mbit")) if fault == Fault.CRAWL else ""


def _direction(source: random.Random, fault: Fault) -> str:
    if fault == Fault.HALF:
        return source.choice(("from", "to"))
    return source.choice(("from", "to", "", "")) if fault == Fault.LAPSE else ""


def _delay(source: random.Random, fault: Fault) -> float:
    if fault == Fault.CRAWL:
        return source.uniform(0.3, 4)
    if fault in HARMLESS:
        return source.uniform(0.05, 0.6)
    if fault == Fault.MEMORY:
        return source.uniform(0, 1e-3)
    return source.choice((0.0, 1e-4, 1e-3, 5e-3)) * source.random()
