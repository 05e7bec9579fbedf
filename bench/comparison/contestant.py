"""Defines a contestant, which is one library to compare: how it is found, set up and started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from comparison.sizes import COLLECTIVES
from peers.cells import Cell

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "bench" / "peers"
BUILT = ROOT / "build" / "peers"
INSTALL = "make peers"


@dataclass(frozen=True)
class Command:
    """One process to start."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """One way to set up a contestant: its description, arguments and environment."""

    words: str
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """Parameters with which a contestant is started once."""

    ranks: int
    seconds: float
    cells: Sequence[Cell]
    setting: Setting
    folder: Path

    def arguments(self) -> list[str]:
        """Returns the arguments of a peer's program."""
        return ["--seconds", str(self.seconds), *map(str, self.cells)]


@dataclass(frozen=True)
class Contestant:
    """A library to compare. If it has several settings, Runner.probe() finds the fastest."""

    name: str
    title: str
    missing: Callable[[], str | None]
    settings: Callable[[int], list[Setting]]
    commands: Callable[[Launch], list[Command]]
    collectives: Sequence[str] = COLLECTIVES


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_ports(count: int) -> list[int]:
    """Returns ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


def loopback() -> str:
    """Returns the name of the loopback interface."""
    return "lo" if sys.platform == "linux" else "lo0"
