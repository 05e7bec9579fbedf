"""Messages at the start of a job: missing ranks, and settings made too late."""

from __future__ import annotations

import socket
import warnings

import pytest
import torch
import torch.distributed as dist
from rank_pool import TIMEOUT, RankPool, end_group


@pytest.fixture(scope="module")
def pair():
    ranks = RankPool(2)
    yield ranks
    ranks.close()


def check_who_comes(path: str, rank: int, size: int) -> str:
    import mccl

    mccl.init(port_base=0, connect_timeout=3)
    try:
        store = dist.FileStore(path, size)
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    except RuntimeError as error:
        return str(error)
    finally:
        end_group()
        mccl.init()
    raise AssertionError("two ranks were missing")


@pytest.mark.parametrize(
    ("come", "said"),
    [
        ([0, 2], "ranks 1 and 3 have not arrived; 0 and 2 have"),
        ([1, 2], "ranks 0 and 3 have not arrived; 1 and 2 have"),
    ],
)
def test_missing_ranks_are_named_on_every_rank(pair, come, said):
    path = pair.store_path()
    for text in pair.run_each(check_who_comes, [(path, rank, 4) for rank in come]):
        assert said in text, text


def late(call) -> list[str]:
    """Returns the warnings that a call raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught if warning.category is RuntimeWarning]


def check_late_init(path: str, rank: int, size: int) -> None:
    import mccl

    assert late(lambda: mccl.init(port_base=0)) == []
    store = dist.FileStore(path, size)
    dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    (text,) = late(lambda: mccl.init(log_level="INFO"))
    assert "mccl.init() was called too late for the process groups of torch" in text
    end_group()
    assert late(mccl.init) == []


def test_init_after_init_process_group_warns(pair):
    path = pair.store_path()
    pair.run_each(check_late_init, [(path, rank, 2) for rank in range(2)])


def check_default_ports(path: str, rank: int, size: int) -> float:
    import os

    import mccl

    port_base = os.environ.pop("MCCL_PORT_BASE")
    try:
        mccl.init()
        store = dist.FileStore(path, size)
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        tensor = torch.tensor([float(rank + 1)])
        dist.all_reduce(tensor)
        return tensor.item()
    finally:
        end_group()
        os.environ["MCCL_PORT_BASE"] = port_base


def test_a_job_beside_another_runs_with_default_ports(pair):
    taken = []
    for port in (29600, 29601):
        listener = socket.socket()
        taken.append(listener)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError:
            continue  # another program has the port, which serves the test as well
    path = pair.store_path()
    try:
        sums = pair.run_each(check_default_ports, [(path, rank, 2) for rank in range(2)])
    finally:
        for listener in taken:
            listener.close()
    assert sums == [3.0, 3.0]
