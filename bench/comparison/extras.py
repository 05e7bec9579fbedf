"""Measures training steps, cables of a known rate, and the overhead of the mpi backend."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from comparison.contestant import PEERS, Command, free_ports
from comparison.launch import launch
from comparison.mccl_program import mccl_missing, mccl_program
from comparison.mpi import layer_commands, layer_missing
from comparison.results import Key, Results
from comparison.steadiness import Steadiness
from comparison.torch_backends import torch_missing
from peers.cells import Cell

RANKS = 2
LIMIT = 600.0  # maximum seconds between two lines
DDP_CELLS = (Cell("ddp_digits", 0), Cell("ddp_25m", 0), Cell("fsdp_25m", 0))
CABLE_CELLS = tuple(
    Cell(name, 64 << 20) for name in ("link_1g", "link_1g_encrypted", "links_1g_500m")
)
LAYER_SECONDS = 2.0  # seconds per size and round


def layer_cells(kind: str) -> tuple[Cell, ...]:
    """Returns the cells that compare the mpi backend with the MPI call that it makes."""
    return (Cell(f"layer_{kind}", 8), Cell(f"layer_{kind}", 64 << 20))


@dataclass(frozen=True)
class Extra:
    """A program that prints the results of several contestants."""

    name: str
    contestant: str
    cells: tuple[Cell, ...]


EXTRAS = {
    "ddp": Extra("ddp", "mccl-torch", DDP_CELLS),
    "cables": Extra("cables", "mccl-tcp", CABLE_CELLS),
    "openmpi": Extra("openmpi", "mccl-mpi", layer_cells("openmpi")),
    "mpich": Extra("mpich", "mccl-mpi", layer_cells("mpich")),
}


def missing(extra: Extra) -> str | None:
    """Returns why the extra cannot run here, or None."""
    if extra.name == "ddp":
        return torch_missing("mccl")
    if extra.contestant == "mccl-mpi":
        return layer_missing(extra.name)
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    return mccl_missing()


def commands(extra: Extra, rounds: int) -> list[Command]:
    """Returns the commands that start the extra."""
    if extra.contestant == "mccl-mpi":
        return layer_commands(extra.name, rounds * LAYER_SECONDS, extra.cells)
    if extra.name == "cables":
        script = [sys.executable, str(PEERS.parent / "shaped.py"), "--lines"]
        return [Command([*script, "--program", str(mccl_program())])]
    (port,) = free_ports(1)
    script = [sys.executable, str(PEERS / "ddp_step.py"), "--rounds", str(rounds)]
    shared = {
        "OMP_NUM_THREADS": "1",
        "MCCL_PORT_BASE": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(RANKS),
    }
    return [Command(script, {**shared, "RANK": str(rank)}) for rank in range(RANKS)]


def run_extra(extra: Extra, rounds: int, results: Results, steadiness: Steadiness) -> None:
    """Measures the extra, or records why it cannot be measured."""
    reason = missing(extra)
    if reason is None:
        outcome = steadiness.run(lambda: launch(commands(extra, rounds), LIMIT, start_limit=LIMIT))
        for line in outcome.lines:
            cell = Cell(line["collective"], line["bytes"])
            results.add(Key(line["contestant"], RANKS, cell), line)
        reason = outcome.failure
    lost = [c for c in extra.cells if results.time_us(extra.contestant, RANKS, c) is None]
    if reason is not None:
        results.mark_absent(extra.contestant, RANKS, lost, reason)
