"""Runs MCCL through mccl.distributed, on NumPy arrays."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from comparison.contestant import PEERS, Command, Contestant, Launch, Setting, free_ports


def numpy_missing() -> str | None:
    absent = [module for module in ("numpy", "mccl") if find_spec(module) is None]
    return f"python has no module {', '.join(absent)}: run `make setup`" if absent else None


def numpy_commands(launch: Launch) -> list[Command]:
    (port,) = free_ports(1)
    shared = {
        "MCCL_WORLD_SIZE": str(launch.ranks),
        "MCCL_ROOT": f"127.0.0.1:{port}",
        "MCCL_PORT_BASE": "0",
        "OMP_NUM_THREADS": "1",
    }
    program = [sys.executable, str(PEERS / "numpy_bench.py"), *launch.arguments()]
    return [Command(program, {**shared, "MCCL_RANK": str(rank)}) for rank in range(launch.ranks)]


MCCL_NUMPY = Contestant(
    "mccl-numpy",
    "MCCL, NumPy",
    numpy_missing,
    lambda ranks: [Setting("the defaults; one core per rank")],
    numpy_commands,
)
