"""MLX's ring, from an environment of its own."""

from __future__ import annotations

import json
from pathlib import Path

from comparison.contestant import BUILT, INSTALL, PEERS, Command, Launch, Setting, free_ports


def mlx_python() -> Path:
    return BUILT / "mlx" / "bin" / "python"


def mlx_missing() -> str | None:
    return None if mlx_python().exists() else f"not installed: run `{INSTALL}` (pip: mlx[cpu])"


def mlx_settings(ranks: int) -> list[Setting]:
    return [
        Setting(f"{count} connection{'s' * (count > 1)} per neighbour on loopback", (str(count),))
        for count in (1, 2)
    ]


def mlx_commands(launch: Launch) -> list[Command]:
    """The hostfile gives each rank one address per connection."""
    lanes = int(launch.setting.argv[0])
    ports = free_ports(launch.ranks * lanes)
    hosts = [
        [f"127.0.0.1:{port}" for port in ports[rank * lanes : (rank + 1) * lanes]]
        for rank in range(launch.ranks)
    ]
    hostfile = launch.folder / "mlx-hosts.json"
    hostfile.write_text(json.dumps(hosts))
    program = [str(mlx_python()), str(PEERS / "mlx_bench.py"), *launch.arguments()]
    return [
        Command(program, {"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hostfile)})
        for rank in range(launch.ranks)
    ]
