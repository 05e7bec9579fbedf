"""Which job a process belongs to, by variables of other programs: what all readers of them share.

Each reader is a function from the environment to the settings that the job is joined with; it
raises Refusal with a sentence when that cannot be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

Environment = Mapping[str, str]


class Refusal(Exception):  # noqa: N818  (it is an answer; whether it is an error depends on strict)
    """Why a backend cannot be used.

    Attributes:
        absent: Nothing in the environment asks for this backend, so that passing over it is right.
    """

    def __init__(self, sentence: str, *, absent: bool = False) -> None:
        super().__init__(sentence)
        self.absent = absent


@dataclass(frozen=True)
class Job:
    """How to join: a backend's name, and the settings that its environment stands for.

    Attributes:
        alone: It is a job of this process only.
        slower: What users should know where MLX's own backend has a faster way; or empty.
        on_gpu: Collectives take streams of MLX's GPU where the caller names none.
    """

    backend: str
    settings: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    slower: str = ""
    on_gpu: bool = False


@dataclass(frozen=True)
class Address:
    """Of a rank that listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def split_address(text: str) -> tuple[str, int]:
    """Host and port, or 0 where there is none."""
    host, _, port = text.strip().rpartition(":")
    good = port.isdecimal() and 1 <= int(port) <= 65535
    return host.removeprefix("[").removesuffix("]"), int(port) if good else 0


def is_on(environment: Environment, variable: str) -> bool:
    """Whether a switch of MLX's is set; to any value, since MLX looks only whether it is there."""
    return variable in environment


def rank_of(backend: str, text: str, size: int, source: str) -> int:
    """The rank that a variable tells, of so many as `source` has."""
    if not text.strip().isdecimal():
        raise Refusal(f"{backend}: MLX_RANK is '{text}'; a rank is an integer from 0")
    rank = int(text)
    if rank >= size:
        raise Refusal(
            f"{backend}: MLX_RANK is {rank}, but {source} has {size} ranks, 0 to {size - 1}; give "
            "every rank an entry there"
        )
    return rank


def require_all(backend: str, given: Mapping[str, str | None]) -> None:
    """Refuses where some of what belongs together is not given."""
    missing = [name for name, text in given.items() if not text]
    if missing:
        found = next(name for name, text in given.items() if text)
        verb = "is" if len(missing) == 1 else "are"
        raise Refusal(f"{backend}: {found} is set, but {' and '.join(missing)} {verb} not")


def shape_of(value: object) -> str:
    """A value of a file, as messages show it."""
    if isinstance(value, (list, dict)) and not value:
        return "an empty list" if isinstance(value, list) else "an empty object"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
