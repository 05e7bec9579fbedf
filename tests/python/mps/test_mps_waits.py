"""Calls that wait for the double's GPU: a group's first call, an aborted one, and a receive."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from fake_device import load, watched


def check_first_barrier() -> None:
    fake = load()
    group = dist.new_group(list(range(dist.get_world_size())))
    kept = torch.ones(100, device="mps")
    fake.hold(True)
    work = dist.barrier(group=group, async_op=True)
    with pytest.raises(RuntimeError, match="not done after 300 ms"):
        work.wait(timedelta(milliseconds=300))
    fake.hold(False)
    work.wait()
    assert kept.cpu().eq(1).all()


def test_the_first_call_of_a_group_may_be_a_barrier(pool):
    pool.run(check_first_barrier)


def check_abort() -> None:
    fake = load()
    group = dist.new_group(list(range(dist.get_world_size())))
    data = torch.ones(5000, device="mps")
    fake.hold(True)
    work = dist.all_reduce(data, group=group, async_op=True)
    future = work.get_future()
    group._get_backend(torch.device("mps")).abort()
    try:
        with pytest.raises(RuntimeError, match="abort"):
            work.wait()
        with pytest.raises(RuntimeError, match="abort"):
            future.wait()
    finally:
        fake.hold(False)
    dist.barrier()


def test_abort_does_not_wait_for_the_device(pool):
    pool.run(check_abort)


def check_receive_behind_the_device() -> None:
    """Rank 1's message arrives while rank 0's GPU has not yet executed its earlier writes."""
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    fake = load()
    with watched():
        if rank == 0:
            dist.barrier()
            fake.hold(True)
            got = torch.full((1000,), -1.0, device="mps")
            receive = dist.irecv(got, 1)
            store.wait(["sent behind the device"])
            assert not receive.is_completed()
            fake.hold(False)
            receive.wait()
            assert got.cpu().eq(7).all()
        else:
            dist.barrier()
        if rank == 1:
            sent = dist.isend(torch.full((1000,), 7.0, device="mps"), 0)
            store.set("sent behind the device", "")
            sent.wait()


def test_fault_19_a_receive_writes_behind_what_the_gpu_has_to_do(pool):
    pool.run(check_receive_behind_the_device)
