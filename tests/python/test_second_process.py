"""A process that claims a rank whose process already runs: each reports the other."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from free_port import free_port
from launching import PATIENCE, environment

NUMPY = """
    import sys
    import mccl.distributed as dist

    world = dist.init()
    assert world.all_reduce(1) == 2
    print("met", flush=True)
    sys.stdin.read()
    assert world.all_reduce(1) == 2
"""
TORCH = """
    import sys
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    import mccl

    dist.init_process_group("mccl", timeout=timedelta(seconds=60))
    value = torch.ones(1)
    dist.all_reduce(value)
    print("met", flush=True)
    sys.stdin.read()
    dist.all_reduce(value)
    assert value.item() == 4
    dist.destroy_process_group()
"""


def start(program: str, rank: int, port: int, **settings: str) -> subprocess.Popen[str]:
    place = {"MCCL_RANK": str(rank), "MCCL_WORLD_SIZE": "2", "MCCL_ROOT": f"127.0.0.1:{port}"}
    if program is TORCH:
        place = {"RANK": str(rank), "WORLD_SIZE": "2"}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment(**(place | {"MCCL_PORT_BASE": "0"} | settings)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("program", "rank_twice", "settings"),
    [
        (NUMPY, 1, {}),
        (NUMPY, 0, {}),
        (NUMPY, 1, {"MCCL_JOB_KEY": "a key of this test", "MCCL_ENCRYPTION": "on"}),
        pytest.param(TORCH, 1, {}, marks=pytest.mark.long),
    ],
    ids=["own store", "rank 0", "encrypted", "torch's store"],
)
def test_a_process_that_comes_late_and_the_first_report_each_other(
    program: str, rank_twice: int, settings: dict[str, str]
):
    port = free_port()
    ranks = [start(program, rank, port, **settings) for rank in (0, 1)]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "met\n"
        late = start(program, rank_twice, port, **(settings | {"MCCL_CONNECT_TIMEOUT": "3"}))
        ranks.append(late)
        _, err = late.communicate(timeout=PATIENCE)
        assert late.returncode != 0
        if rank_twice == 0:
            assert "rank 0 exists already: it serves the job's store at " in err, err
        else:
            assert f"rank 1 exists already: it is process {ranks[1].pid} on " in err, err
            assert f"this is process {late.pid} on " in err, err
        for rank in ranks[:2]:
            assert rank.stdin is not None
            rank.stdin.close()
            rank.stdin = None
        said = [rank.communicate(timeout=PATIENCE)[1] for rank in ranks[:2]]
        assert [rank.returncode for rank in ranks[:2]] == [0, 0], said
        claim = f"claims to be rank {rank_twice}, which is this process"
        assert claim in said[rank_twice], said[rank_twice]
    finally:
        for rank in ranks:
            rank.kill()
