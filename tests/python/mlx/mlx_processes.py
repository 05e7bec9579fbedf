"""Separate Python processes that run a few lines with the environment that a test gives them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from free_port import free_port
from mlx_ranks import clean_environment

PRELUDE = """
import logging, os, sys
import mlx.core as mx
import mccl.mlx
logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
"""


def start(code: str, environment: dict[str, str], *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *arguments, "-c", PRELUDE + code],
        env=clean_environment() | {"MCCL_TIMEOUT": "60"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The tests may run where SIGINT is ignored, for example in a shell's background job.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def finish(process: subprocess.Popen, status: int = 0) -> tuple[str, str]:
    """Waits for the process to exit and returns its standard output and standard error."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == status, output + errors
    return output, errors


def run(code: str, environment: dict[str, str] | None = None, status: int = 0) -> tuple[str, str]:
    return finish(start(code, environment or {}), status)


def ring_environments(folder: Path, size: int, lanes: int = 1) -> list[dict[str, str]]:
    hosts = [[f"127.0.0.{1 + lane}:{free_port()}" for lane in range(lanes)] for _ in range(size)]
    path = folder / "hosts.json"
    path.write_text(json.dumps(hosts))
    return [{"MLX_RANK": str(rank), "MLX_HOSTFILE": str(path)} for rank in range(size)]


def run_ranks(code: str, environments: list[dict[str, str]]) -> list[tuple[str, str]]:
    processes = [start(code, environment) for environment in environments]
    return [finish(process) for process in processes]


#: Each line is a single write, because launchers pass on partial lines as ranks write them.
SUM = """
total = mx.distributed.all_sum(mx.array(group.rank() + 1), group=group).item()
sys.stdout.write(f"{total} {group.size()}\\n")
"""
