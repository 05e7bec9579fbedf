"""Python processes that are the ranks of a job."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from world_pool import free_address

LIMIT = 60


def start(code: str, **environment: str) -> subprocess.Popen:
    """Starts a Python process whose only settings of a job are those in `environment`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MCCL_")}
    return subprocess.Popen(
        [sys.executable, "-c", "import mccl.distributed as dist\n" + textwrap.dedent(code)],
        env={**inherited, "MCCL_PORT_BASE": "0", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    return process.returncode, out, err


def run(code: str, **environment: str) -> tuple[int, str, str]:
    return finish(start(code, **environment))


def run_ranks(code: str, size: int = 2) -> list[tuple[int, str, str]]:
    root = free_address()
    processes = [
        start(code, MCCL_RANK=str(rank), MCCL_WORLD_SIZE=str(size), MCCL_ROOT=root)
        for rank in range(size)
    ]
    return [finish(process) for process in processes]


def well(results) -> list[str]:
    for status, _, err in results:
        assert status == 0, err
        assert "leaked" not in err, err
    return [out for _, out, _ in results]
