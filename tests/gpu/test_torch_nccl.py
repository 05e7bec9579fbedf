"""Collectives on GPU memory by NCCL, a GPU for each of two ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import test_torch_cuda as checks

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL takes a GPU per rank")


@pytest.fixture(scope="module")
def pair():
    from rank_pool import RankPool

    ranks = RankPool(2)
    ranks.run(choose_nccl, group=False)
    yield ranks
    ranks.close()


def choose_nccl() -> None:
    import mccl

    mccl.init(backend="nccl")


@pytest.mark.parametrize("dtype", checks.EXACT, ids=str)
def test_all_reduce_of_every_type(pair, dtype):
    pair.run(checks.check_all_reduce, "cuda", dtype)


def test_calls_that_move_data(pair):
    pair.run(checks.check_moves, "cuda")


def test_uneven_parts(pair):
    pair.run(checks.check_uneven, "cuda")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_strided_tensors(pair):
    pair.run(checks.check_strided, "cuda")


def test_messages(pair):
    pair.run(checks.check_messages, "cuda")


def test_ddp(pair):
    pair.run(checks.check_ddp)


def test_fsdp2(pair):
    pair.run(checks.check_fsdp2)


def check_graph() -> None:
    size, where = dist.get_world_size(), checks.place("cuda")
    torch.cuda.set_device(where)
    data = torch.ones(1000, device=where)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(data)
    data.fill_(1)
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    assert data.eq(size**5).all()


def test_a_captured_call_runs_again(pair):
    pair.run(check_graph)


def check_abort() -> None:
    data = torch.ones(1000, device=checks.place("cuda"))
    dist.all_reduce(data)
    if dist.get_rank() == 0:
        work = dist.all_reduce(data, async_op=True)
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda")).abort()
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(3))
        work.wait()
        torch.cuda.synchronize()


def test_an_abort_ends_what_runs(pair):
    pair.run_and_break(check_abort)
