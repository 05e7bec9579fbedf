"""One trial as a value: ranks, settings, calls, and the fault that one of them suffers."""

import random
from dataclasses import dataclass, replace
from enum import StrEnum

import traffic
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
    RESET = "reset connections"
    ABORT = "abort"
    MISMATCH = "other call"
    OMIT = "call left out"
    FILES = "no descriptors"
    MEMORY = "no memory"


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


#: Faults per hundred trials. Stopped ranks and cut networks take the liveness interval.
WEIGHTS = {
    Fault.NONE: 3, Fault.KILL: 20, Fault.SEGV: 7, Fault.EXIT: 8, Fault.LEAVE: 7, Fault.STOP: 9,
    Fault.PAUSE: 7, Fault.CUT: 5, Fault.LAPSE: 3, Fault.DOWN: 2, Fault.RESET: 4,
    Fault.ABORT: 9, Fault.MISMATCH: 10,
    Fault.OMIT: 5, Fault.FILES: 3, Fault.MEMORY: 4,
}  # fmt: skip
SIZES = {2: 26, 3: 22, 4: 22, 5: 10, 6: 8, 7: 5, 8: 7}
#: Faults that end the process of the victim, and those after which it stays silent.
DEATHS = frozenset({Fault.KILL, Fault.SEGV, Fault.EXIT})
SILENCES = frozenset({Fault.STOP, Fault.CUT})
#: Trials with these faults need network namespaces, hence root.
NETWORKED = frozenset({Fault.CUT, Fault.LAPSE, Fault.DOWN, Fault.RESET})
#: Faults of which no call may notice anything.
HARMLESS = frozenset({Fault.NONE, Fault.PAUSE, Fault.LAPSE, Fault.DOWN, Fault.RESET})
#: Faults that the victim commits with the call itself.
WRONG_CALLS = frozenset({Fault.MISMATCH, Fault.OMIT})
#: Faults that trials of torch and MLX have.
FOR_FRAMEWORKS = DEATHS | {Fault.NONE, Fault.STOP, Fault.PAUSE}
#: Faults of trials along cables, which need as many ranks as the ring has hosts.
FOR_CABLES = FOR_FRAMEWORKS | {Fault.ABORT, Fault.MISMATCH, Fault.DOWN, Fault.RESET}
RING = 4
#: Faults for which the program may also go on unharmed.
OPTIONAL = frozenset({Fault.FILES, Fault.MEMORY})

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
    #: Cables in a ring join the ranks, which reach only their neighbours.
    cabled: bool

    @property
    def needs_hosts(self) -> bool:
        return self.cabled or self.fault in NETWORKED

    @property
    def steps(self) -> int:
        """The number of steps of a program that no fault ends."""
        return self.step + 4

    @property
    def settings(self) -> dict[str, object]:
        secret = {"encryption": "on"} if self.encryption else {}
        if self.encryption or self.needs_hosts:
            secret["job_key"] = "5" * 32
        return {
            "transport": self.transport,
            "algorithm": self.algorithm,
            "compression": self.compression,
            "compression_min_bytes": 1024,
            "calibrate": self.calibrate,
            "liveness_interval": self.liveness_interval,
            "connect_timeout": CONNECT_TIMEOUT,
            "timeout": 120.0,
            **secret,
        }

    def calls(self, step: int) -> list[Call]:
        """Returns the calls of a step, the same on every rank."""
        calls = self._draw_calls(step)
        return calls if self.face == Face.NUMPY else [traffic.for_framework(each) for each in calls]

    def _draw_calls(self, step: int) -> list[Call]:
        source = random.Random(f"{self.seed} {step}")
        if step == self.step and self.fault in WRONG_CALLS:
            return [traffic.draw_that_differs(source, self.size, self.difference)]
        if step == self.step and self.fault in OPTIONAL:
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


def draw(seed: int) -> Scenario:
    """Returns the scenario of this seed, which depends on nothing else."""
    source = random.Random(seed)
    pick = lambda weights: source.choices(list(weights), list(weights.values()))[0]  # noqa: E731
    fault, size = pick(WEIGHTS), pick(SIZES)
    transport = source.choice(("shm", "tcp", "tcp", "auto"))
    if fault in NETWORKED:
        transport, size = "tcp", min(size, 4)
    moment = _moment(source, fault)
    may_be_of_a_framework = fault in FOR_FRAMEWORKS and moment != Moment.MEETING
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
        liveness_interval=DEFAULT_INTERVAL if source.random() < 0.04 else SHORT_INTERVAL,
        difference=source.choice(traffic.DIFFERENCES) if fault == Fault.MISMATCH else "",
        wakes=fault == Fault.STOP and source.random() < 0.5,
        face=source.choices(list(Face), (76, 12, 12))[0] if may_be_of_a_framework else Face.NUMPY,
        cabled=False,
    )
    cabled = may_be_cabled and moment != Moment.MEETING and source.random() < 0.5
    return replace(scenario, cabled=cabled and scenario.face == Face.NUMPY)


def _moment(source: random.Random, fault: Fault) -> Moment:
    """Returns a moment that the fault allows."""
    if fault in WRONG_CALLS or fault in OPTIONAL or fault == Fault.NONE:
        return Moment.BETWEEN
    if fault == Fault.LEAVE:
        return source.choice((Moment.BETWEEN, Moment.FLIGHT))
    if fault in DEATHS and source.random() < 0.12:
        return Moment.MEETING
    return source.choice((Moment.BETWEEN, Moment.FLIGHT, Moment.INSIDE, Moment.INSIDE))


def _delay(source: random.Random, fault: Fault) -> float:
    if fault in HARMLESS:
        return source.uniform(0.05, 0.6)
    if fault == Fault.MEMORY:
        return source.uniform(0, 1e-3)
    return source.choice((0.0, 1e-4, 1e-3, 5e-3)) * source.random()
