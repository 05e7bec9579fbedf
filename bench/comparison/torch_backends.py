"""Runs two backends of torch.distributed: MCCL and Gloo."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from comparison.contestant import PEERS, Command, Contestant, Launch, Setting, free_ports, loopback

MCCL_TORCH = Setting("the defaults; one compute thread per rank", (), {"MCCL_PORT_BASE": "0"})
GLOO = Setting(
    "its default threads, loopback interface; one compute thread per rank",
    (),
    {"GLOO_SOCKET_IFNAME": loopback()},
)


def torch_missing(backend: str) -> str | None:
    wanted = ["torch"] + (["mccl"] if backend == "mccl" else [])
    absent = [module for module in wanted if find_spec(module) is None]
    return f"python has no module {', '.join(absent)}: run `make setup`" if absent else None


def torch_contestant(name: str, title: str, backend: str, setting: Setting) -> Contestant:
    def commands(launch: Launch) -> list[Command]:
        (port,) = free_ports(1)
        shared = {
            "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(launch.ranks),
            **launch.setting.env,
        }
        script = [sys.executable, str(PEERS / "torch_bench.py"), "--backend", backend]
        return [
            Command([*script, *launch.arguments()], {**shared, "RANK": str(rank)})
            for rank in range(launch.ranks)
        ]

    return Contestant(
        name, title, lambda: torch_missing(backend), lambda ranks: [setting], commands
    )
