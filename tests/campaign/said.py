"""What the commands of a trial said, as values."""

import json
from dataclasses import dataclass, field

from trial import UNASKABLE, Trial


@dataclass(frozen=True)
class Ran:
    """A command that was run; its status is None where it passed its bound."""

    name: str
    status: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def answer(self) -> dict:
        """The JSON that it printed; empty where it printed something else."""
        try:
            answer = json.loads(self.stdout)
        except ValueError:
            return {}
        return answer if isinstance(answer, dict) else {}


@dataclass(frozen=True)
class Config:
    """`mccl config` for these hosts, and whether the fault was there already."""

    ran: Ran
    names: tuple[str, ...]
    planted: bool
    wrote: bool  # a hostfile

    def names_unaskable(self, trial: Trial) -> bool:
        return trial.fault in UNASKABLE and trial.victim in self.names


@dataclass(frozen=True)
class Doctor:
    """`mccl doctor` for these hosts, and the cables that had addresses then."""

    ran: Ran
    names: tuple[str, ...]
    addressed: frozenset[int]


@dataclass(frozen=True)
class Run:
    """`mccl launch` of a program of `torch` or `mlx`; the names are in the order of the ranks."""

    ran: Ran
    names: tuple[str, ...]
    kind: str

    @property
    def lines(self) -> list[str]:
        return sorted(self.ran.stdout.splitlines())


@dataclass
class Said:
    """Everything that mccl said in a trial."""

    configs: list[Config] = field(default_factory=list)
    doctors: list[Doctor] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)

    @property
    def commands(self) -> list[Ran]:
        return [each.ran for each in (*self.configs, *self.doctors, *self.runs)]
