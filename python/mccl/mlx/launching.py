"""Replaces MLX's launcher by `mccl launch`."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from mccl.__main__ import require_program


def replace_launchers() -> None:
    """Makes `mlx.launch`, and callers of its functions such as `mlx_lm.share`, start ranks on MCCL.

    Ranks on other machines then use MCCL too, and all ranks share a job key.
    """
    from mlx._distributed_utils import launch

    for backend in ("ring", "jaccl", "nccl"):
        setattr(launch, f"launch_{backend}", functools.partial(_launch, backend))


def _launch(
    backend: str, parser: object, hosts: Sequence[Any], args: Any, command: Sequence[str]
) -> None:
    """Replaces MLX's launch_ring, launch_jaccl and launch_nccl, whose arguments it takes."""
    program = require_program()
    with tempfile.NamedTemporaryFile("w", prefix="mccl-hosts-", suffix=".json") as file:
        json.dump(_hostfile(args.backend or backend, hosts, args.env), file)
        file.flush()
        words = [str(program), "launch", "--mlx", "--hostfile", file.name, "-n", "1"]
        words += _flags(args)
        status = _run([*words, "--", *command])
    if status != 0:
        sys.exit(status)


def _run(words: list[str]) -> int:
    """Runs a program, forwards SIGTERM and SIGHUP to it, and returns its exit status."""
    process: subprocess.Popen | None = None
    early: list[int] = []

    def forward(number: int, _: object) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    # SIGINT is ignored here, because the terminal sends it to both processes.
    handlers = {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: forward, signal.SIGHUP: forward}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        # preexec_fn restores the handler of SIGINT, which the program would otherwise ignore as
        # well.
        process = subprocess.Popen(
            words, preexec_fn=lambda: signal.signal(signal.SIGINT, before[signal.SIGINT])
        )
        for number in early:
            process.send_signal(number)
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hostfile(backend: str, hosts: Sequence[Any], variables: Sequence[str]) -> dict[str, Any]:
    entries = []
    for host in hosts:
        entry: dict[str, Any] = {"ssh": host.ssh_hostname}
        if host.ips:
            entry["ips"] = host.ips
        if host.rdma:
            entry["rdma"] = host.rdma
        entries.append(entry)
    return {"backend": backend, "envs": list(variables), "hosts": entries}


def _flags(args: Any) -> list[str]:
    """The flags of `mccl launch` that correspond to those given to MLX's launcher."""
    usual = {"starting_port": 32323, "connections_per_ip": 1, "nccl_port": 12345}
    words = []
    for name in ("starting_port", "connections_per_ip", "nccl_port", "cwd", "python"):
        value = getattr(args, name, None)
        if value is not None and value != usual.get(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    if getattr(args, "verbose", False):
        words.append("--verbose")
    return words
