"""torch.distributed.shrink_group: the remaining ranks continue after a death."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from free_port import free_port

START = """
import os, signal, torch, torch.distributed as dist
from torch.distributed import distributed_c10d
dist.init_process_group("mccl")
rank = dist.get_rank()

def total():
    tensor = torch.tensor([rank])
    dist.all_reduce(tensor)
    return tensor.item()
"""


def run_ranks(size: int, code: str) -> list[tuple[int, str]]:
    """Runs the code on each rank; returns the exit statuses and what the ranks printed."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", START + textwrap.dedent(code)],
            env={**os.environ, **address, "RANK": str(rank), "WORLD_SIZE": str(size)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outs = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, out) for rank, out in zip(ranks, outs, strict=True)]


@pytest.mark.long
def test_the_default_group_continues_without_a_killed_rank():
    done = run_ranks(
        4,
        """
        assert total() == 6
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                total()
        except dist.DistBackendError as error:
            assert "rank 1 is gone" in str(error), error
        dist.shrink_group([1])
        print(f"{dist.get_rank()} of {dist.get_world_size()}, sum {total()}", flush=True)
        # torch takes the backend of a default group that was shrunk for Gloo's, and would crash.
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Linear(3, 2), process_group=dist.new_group()
        )
        model(torch.ones(1, 3)).sum().backward()
        dist.barrier()
        dist.destroy_process_group()
        """,
    )
    assert done[1][0] != 0
    for new, old in enumerate((0, 2, 3)):
        status, out = done[old]
        assert status == 0, out
        assert f"{new} of 3, sum 5" in out


def test_pending_calls_of_a_subgroup_end_where_it_is_asked_for():
    done = run_ranks(
        3,
        """
        group = dist.new_group([0, 1, 2])
        if rank < 2:
            work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
            flags = distributed_c10d.SHRINK_ABORT
            smaller = dist.shrink_group([2], group=group, shrink_flags=flags)
            try:
                work.wait()
                print("not ended")
            except dist.DistBackendError as error:
                assert "aborted by rank" in str(error), error
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=smaller)
            print("sum", tensor.item(), flush=True)
        print("all:", total(), flush=True)
        dist.barrier()
        dist.destroy_process_group()
        """,
    )
    for status, out in done:
        assert status == 0, out
        assert "all: 3" in out
        assert "not ended" not in out
    assert all("sum 2.0" in out for _, out in done[:2])


@pytest.mark.long
def test_bad_ranks_are_refused():
    done = run_ranks(
        2,
        """
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert backend.supports_shrinking
        for ranks, text in (([2], "invalid rank 2"), ([rank], "excludes itself")):
            try:
                backend.shrink(ranks, 0, None)
                print("not refused")
            except (ValueError, RuntimeError) as error:
                assert text in str(error), error
        print("sum", total(), flush=True)
        dist.destroy_process_group()
        """,
    )
    for status, out in done:
        assert status == 0, out
        assert "not refused" not in out
        assert "sum 1" in out
