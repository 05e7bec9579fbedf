"""Calls that wait for the GPU of a double: the first of a group, and those of one that ends."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from fake_device import load


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


def test_who_aborts_waits_for_no_device(pool):
    pool.run(check_abort)
