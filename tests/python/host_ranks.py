"""Ranks on the hosts of chaos/hosts.py."""

import subprocess

from hosts import Hosts
from launching import start_with_pipes


def start(
    hosts: Hosts, rank: int, size: int, *words: object, **settings: str
) -> subprocess.Popen[str]:
    """Starts a rank of a job over TCP. The arguments `settings` are environment variables."""
    variables = {
        "MCCL_RANK": str(rank),
        "MCCL_WORLD_SIZE": str(size),
        "MCCL_ROOT": f"{hosts.address(0)}:29500",
        "MCCL_JOB_KEY": "a key of the tests",
        "MCCL_TRANSPORT": "tcp",  # the hosts share a kernel and therefore memory
        "MCCL_TIMEOUT": "60",
    }
    return start_with_pipes(hosts.command(rank, *words), **(variables | settings))
