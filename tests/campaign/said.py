"""The output of a trial's commands, as values."""

import json
from dataclasses import dataclass, field

from trial import UNASKABLE, Trial


@dataclass(frozen=True)
class Ran:
    """A command that was run. Its status is None if it exceeded its time limit."""

    name: str
    status: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def answer(self) -> dict:
        """The JSON object that the command printed; empty if it printed anything else."""
        try:
            answer = json.loads(self.stdout)
        except ValueError:
            return {}
        return answer if isinstance(answer, dict) else {}


@dataclass(frozen=True)
class Config:
    """One run of `mccl config` for these hosts, and whether the fault was already planted."""

    ran: Ran
    names: tuple[str, ...]
    planted: bool
    wrote: bool  # whether it wrote a hostfile

    def names_unaskable(self, trial: Trial) -> bool:
        return trial.fault in UNASKABLE and trial.victim in self.names


@dataclass(frozen=True)
class Doctor:
    """One run of `mccl doctor` for these hosts, and the cables that had addresses then."""

    ran: Ran
    names: tuple[str, ...]
    addressed: frozenset[int]


@dataclass(frozen=True)
class Run:
    """One run of `mccl launch` with a `torch` or `mlx` program. `names` is in rank order."""

    ran: Ran
    names: tuple[str, ...]
    kind: str

    @property
    def lines(self) -> list[str]:
        return sorted(self.ran.stdout.splitlines())


@dataclass
class Said:
    """All output of mccl in a trial."""

    configs: list[Config] = field(default_factory=list)
    doctors: list[Doctor] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)

    @property
    def commands(self) -> list[Ran]:
        return [each.ran for each in (*self.configs, *self.doctors, *self.runs)]
