"""Code shared by the functions that find the job of a process from variables of other programs.

Each of these functions takes the environment and returns a Job, with the settings for joining it.
It raises Refusal with the reason if the process cannot join.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

Environment = Mapping[str, str]


class Refusal(Exception):  # noqa: N818  (the caller decides whether it is an error)
    """The reason why a backend cannot be used.

    Attributes:
        absent: True if nothing in the environment selects this backend, so that it can be skipped.
    """

    def __init__(self, sentence: str, *, absent: bool = False) -> None:
        super().__init__(sentence)
        self.absent = absent


@dataclass(frozen=True)
class Job:
    """How to join a job: a backend's name, and the settings that the environment implies.

    Attributes:
        alone: True for a job of this process only.
        slower: Advice for users if MLX's own backend is faster; else empty.
        on_gpu: True if collectives run on streams of MLX's GPU by default.
    """

    backend: str
    settings: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    slower: str = ""
    on_gpu: bool = False


@dataclass(frozen=True)
class Address:
    """The address at which a rank listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def split_address(text: str) -> tuple[str, int]:
    """Host and port of "host:port"; port 0 if the port is missing or not from 1 to 65535."""
    host, _, port = text.strip().rpartition(":")
    good = port.isdecimal() and 1 <= int(port) <= 65535
    return host.removeprefix("[").removesuffix("]"), int(port) if good else 0


def is_on(environment: Environment, variable: str) -> bool:
    """True if this flag of MLX is set, to any value, because MLX only checks whether it is set."""
    return variable in environment


def rank_of(backend: str, text: str, size: int, source: str) -> int:
    """Parses the rank in `text`. Raises Refusal unless the rank is below `size`.

    `source` names the variable or file that `size` was read from, for messages.
    """
    if not text.strip().isdecimal():
        raise Refusal(f"{backend}: MLX_RANK: expected an integer from 0; found '{text}'")
    rank = int(text)
    if rank >= size:
        raise Refusal(
            f"{backend}: MLX_RANK is {rank}, but {source} has {size} ranks, 0 to {size - 1}; "
            "correct one of the two"
        )
    return rank


def require_all(backend: str, given: Mapping[str, str | None]) -> None:
    """Raises Refusal if only some of the variables that belong together are given."""
    missing = [name for name, text in given.items() if not text]
    if missing:
        found = next(name for name, text in given.items() if text)
        verb = "is" if len(missing) == 1 else "are"
        raise Refusal(f"{backend}: {found} is set, but {' and '.join(missing)} {verb} not")


def shape_of(value: object) -> str:
    """Formats a value of a JSON file for messages, in at most 61 characters."""
    if isinstance(value, (list, dict)) and not value:
        return "an empty list" if isinstance(value, list) else "an empty object"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
