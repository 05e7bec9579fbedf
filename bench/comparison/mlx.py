"""Runs mx.distributed on two engines: MLX's own ring, and MCCL."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.util import find_spec

from comparison.contestant import PEERS, Command, Contestant, Launch, Setting, free_ports

COLLECTIVES = ("all_reduce", "all_gather", "sendrecv")


def mlx_missing(engine: str) -> str | None:
    """Returns why an engine cannot be measured here, or None."""
    # A build that finds no MLX has no extension for it.
    wanted = ["mlx.core"] + (["mccl", "mccl._built_for"] if engine == "mccl" else [])
    try:
        absent = [name for name in wanted if find_spec(name) is None]
        if engine == "mccl" and not absent and not importlib.import_module("mccl._built_for").MLX:
            absent = ["mccl._mlx"]
    except ModuleNotFoundError as error:
        absent = [str(error.name)]
    return f"python has no module {', '.join(absent)}: run `make setup`" if absent else None


def ring_settings(ranks: int) -> list[Setting]:
    """Returns settings of MLX's ring with one and with two connections."""
    return [
        Setting(f"{count} connection{'s' * (count > 1)} per neighbour on loopback", (str(count),))
        for count in (1, 2)
    ]


def mccl_settings(transport: str) -> list[Setting]:
    """Returns the setting of MCCL with its defaults, or on one transport."""
    words = "the defaults" if transport == "auto" else f"MCCL_TRANSPORT={transport}"
    return [Setting(words, ("1",), {"MCCL_TRANSPORT": transport, "MCCL_PORT_BASE": "0"})]


def commands_of(engine: str, launch: Launch) -> list[Command]:
    """Writes a hostfile with one address per rank and connection, and returns the commands."""
    lanes = int(launch.setting.argv[0])
    ports = free_ports(launch.ranks * lanes)
    hosts = [
        [f"127.0.0.1:{port}" for port in ports[rank * lanes : (rank + 1) * lanes]]
        for rank in range(launch.ranks)
    ]
    hostfile = launch.folder / f"{engine}-hosts.json"
    hostfile.write_text(json.dumps(hosts))
    script = [sys.executable, str(PEERS / "mlx_bench.py"), "--engine", engine]
    shared = {"MLX_HOSTFILE": str(hostfile), **launch.setting.env}
    return [
        Command([*script, *launch.arguments()], {**shared, "MLX_RANK": str(rank)})
        for rank in range(launch.ranks)
    ]


def ring_contestant() -> Contestant:
    """Returns the contestant for MLX's own ring."""
    return Contestant(
        "mlx",
        "MLX ring",
        lambda: mlx_missing("mlx"),
        ring_settings,
        lambda launch: commands_of("mlx", launch),
        COLLECTIVES,
    )


def mccl_mlx_contestant(name: str, transport: str) -> Contestant:
    """Returns the contestant for MCCL under mx.distributed."""
    return Contestant(
        name,
        "MCCL, MLX" if transport == "auto" else f"MCCL, MLX, {transport.upper()}",
        lambda: mlx_missing("mccl"),
        lambda ranks: mccl_settings(transport),
        lambda launch: commands_of("mccl", launch),
        COLLECTIVES if transport == "auto" else ("all_reduce",),
    )
