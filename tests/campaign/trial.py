"""One random trial as a value: hosts, cables between them, and a fault."""

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Cable = tuple[str, str]

#: Number of trials out of 50 by number of hosts. Most trials must be small so that 50 trials end
#: within a quarter of an hour.
SIZES = {2: 12, 3: 14, 4: 11, 5: 5, 6: 4, 8: 2, 12: 1, 16: 1}
#: A mesh of more hosts would have too many cables.
LARGEST_MESH = 6


class Cabling(StrEnum):
    RING = "ring"
    CHAIN = "chain"
    MESH = "mesh"
    STAR = "star"
    SPARSE = "sparse"
    NONE = "no cables"


class Fault(StrEnum):
    NONE = "none"
    DOWN = "host down"
    NO_MCCL = "no mccl"
    OTHER_BUILD = "another build"
    OTHER_VERSION = "another version"
    SLOW_HOST = "slow host"
    SLOW_LINK = "slow link"
    HANGING = "hanging login"
    CLOSED_PORTS = "closed ports"
    CLOSED_CALLS = "closed calls"
    NOISY = "noisy shell"


#: A host with one of these faults does not answer mccl's questions.
UNASKABLE = frozenset({Fault.DOWN, Fault.NO_MCCL, Fault.OTHER_BUILD, Fault.HANGING})
#: No job can run on a host with one of these faults.
FATAL = frozenset({Fault.DOWN, Fault.NO_MCCL, Fault.HANGING})


#: Number of cards without a fault among those dealt: a third of all trials have no fault.
NO_FAULTS = len(Fault) // 2


@dataclass(frozen=True)
class Trial:
    seed: int
    names: tuple[str, ...]
    cabling: Cabling
    #: Cable k is interface `c<k>` at both ends.
    cables: tuple[Cable, ...]
    #: The hosts share no network: only cables join them.
    apart: bool
    #: The cables have addresses before `mccl config` runs. Otherwise config assigns addresses.
    addressed: bool
    #: The value of `--over`; empty if the option is not given.
    over: str
    fault: Fault
    #: The host with the fault; empty if there is no fault.
    victim: str
    #: The interface of a slow link; empty for other faults.
    interface: str
    #: True if the fault is present before `mccl config` runs. Otherwise it is planted afterwards.
    early: bool

    @property
    def healthy(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name != self.victim)

    def __str__(self) -> str:
        network = "no common network" if self.apart else "a common network"
        cables = f"{len(self.cables)} cables" + (" with addresses" if self.addressed else "")
        over = f", --over {self.over}" if self.over else ""
        fault = self.fault.value
        if self.victim:
            place = f"{self.victim} ({self.interface})" if self.interface else self.victim
            fault = f"{fault} at {place} {'before' if self.early else 'after'} config"
        shape = self.cabling.value + (f", {cables}" if self.cables else "")
        return f"{len(self.names)} hosts, {shape}, {network}{over}; {fault}"


def draw(seed: int) -> Trial:
    """Returns the trial of this seed, the same on every call.

    Sizes, cablings and faults are dealt out over consecutive seeds, so that a few trials already
    cover all of them.
    """
    rng = random.Random(seed)
    size = _dealt(seed, [size for size, times in SIZES.items() for _ in range(times)])
    names = tuple(chr(ord("a") + i) for i in range(size))
    cabling = _dealt(seed, list(Cabling))
    if cabling == Cabling.MESH and size > LARGEST_MESH:
        cabling = Cabling.RING
    cables = tuple(_cables(rng, cabling, list(names)))
    apart = bool(cables) and rng.random() < 0.4
    addressed = bool(cables) and rng.random() < 0.5
    overs = ["", "cables"] if apart else ["", "cables", "ethernet"]
    over = rng.choice(overs) if cables else rng.choice(["", "ethernet"])
    fault = _dealt(seed, [*Fault, *[Fault.NONE] * (NO_FAULTS - 1)])
    victim = "" if fault == Fault.NONE else rng.choice(names)
    interface = _interface(rng, victim, cables, apart) if fault == Fault.SLOW_LINK else ""
    early = bool(victim) and rng.random() < 0.4
    return Trial(
        seed, names, cabling, cables, apart, addressed, over, fault, victim, interface, early
    )


def _dealt(seed: int, cards: list) -> Any:
    """Returns the seed's card from a shuffled pack.

    Each run of len(cards) consecutive seeds, starting at a multiple of len(cards), gets every card
    once.
    """
    pack, place = divmod(seed, len(cards))
    return random.Random(pack).sample(cards, len(cards))[place]


def _cables(rng: random.Random, cabling: Cabling, names: list[str]) -> list[Cable]:
    """Returns the cables in random order, among hosts in random order."""
    rng.shuffle(names)
    chain = list(itertools.pairwise(names))
    pairs = [(a, b) for i, a in enumerate(names) for b in names[:i]]
    cables = {
        Cabling.RING: lambda: chain + ([(names[-1], names[0])] if len(names) > 2 else []),
        Cabling.CHAIN: lambda: chain,
        Cabling.MESH: lambda: pairs,
        Cabling.STAR: lambda: [(names[0], name) for name in names[1:]],
        Cabling.SPARSE: lambda: _sparse(rng, names, pairs),
        Cabling.NONE: list,
    }[cabling]()
    rng.shuffle(cables)
    return cables


def _sparse(rng: random.Random, names: list[str], pairs: list[Cable]) -> list[Cable]:
    """Returns a random tree and a few more cables. A pair of hosts may have two cables."""
    tree = [(name, rng.choice(names[:i])) for i, name in enumerate(names) if i > 0]
    return tree + rng.choices(pairs, k=rng.randint(0, max(1, len(names) // 2)))


def _interface(rng: random.Random, victim: str, cables: Iterable[Cable], apart: bool) -> str:
    """Returns an interface of the victim that leads to other hosts."""
    own = [f"c{k}" for k, ends in enumerate(cables) if victim in ends]
    return rng.choice(own if apart else [*own, "cable"])
