"""Tensors in pool memory that the other ranks' GPUs read and write directly."""

from __future__ import annotations

import os

import pytest
import sharing
import test_torch_cuda as checks
import torch
import torch.distributed as dist

#: Element counts too large for the kernels that send data together with flags. The staging kernels
#: need one round for some of them and several rounds for others.
COUNTS = [700_001, 3_000_000, 9_000_003]


@pytest.fixture(scope="module", params=[*sharing.WAYS, "native"])
def pair(request):
    from rank_pool import RankPool

    sharing.skip_what_needs_two_gpus(request.param)
    ranks = RankPool(2)
    ranks.run(sharing.choose, request.param, group=False)
    yield ranks
    ranks.close()


def start() -> tuple[torch.device, object, torch.cuda.MemPool]:
    where = checks.place("cuda")
    torch.cuda.set_device(where)
    backend = dist.group.WORLD._get_backend(where)
    return where, backend, torch.cuda.MemPool(backend.mem_allocator)


def fill(data: torch.Tensor, rank: int) -> torch.Tensor:
    return data.copy_((torch.arange(data.numel(), device=data.device) + rank) % 7)


def numbers(count: int, rank: int, like: torch.Tensor) -> torch.Tensor:
    return fill(torch.empty(count, device=like.device, dtype=like.dtype), rank)


def check_sums(whole: torch.Tensor, in_pool: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in COUNTS:
        for offset in (0, 8, 1):  # aligned to 16 bytes, and unaligned
            data = whole[offset : offset + count]
            fill(data, rank)
            expected = sum(numbers(count, r, data) for r in range(size))
            dist.all_reduce(data)
            assert torch.equal(data, expected), (in_pool, count, offset, data.dtype)
            dist.all_reduce(data, op=dist.ReduceOp.AVG)
            assert torch.equal(data, expected), (in_pool, count, offset, data.dtype)


def check_all_reduce() -> None:
    where, backend, pool = start()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        with torch.cuda.use_mem_pool(pool):
            whole = torch.empty(COUNTS[-1] + 8, device=where, dtype=dtype)
        check_sums(whole, "not yet reached")
        backend.register_mem_pool(pool)
        check_sums(whole, "reached")
        if dist.get_rank() == 0:  # rank 0's tensor lies outside the pool, so all ranks use staging
            whole = torch.empty_like(whole)
        check_sums(whole, "of one rank")


def test_sums_of_every_type(pair):
    pair.run(check_all_reduce)


def check_moves() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    where, backend, pool = start()
    with torch.cuda.use_mem_pool(pool):
        whole = torch.empty(size * COUNTS[-1], device=where)
        result = torch.empty_like(whole)
    backend.register_mem_pool(pool)
    for count in COUNTS:
        one, every, out = whole[:count], whole[: size * count], result[: size * count]
        expected = [numbers(count, r, whole) for r in range(size)]
        for _ in range(3):
            out.fill_(-1)
            fill(one, rank)
            dist.all_gather_into_tensor(out, one)
            assert torch.equal(out, torch.cat(expected)), count
            own = every.chunk(size)[rank]
            fill(own, rank)
            dist.all_gather_into_tensor(every, own)
            assert torch.equal(every, torch.cat(expected)), count
            out.fill_(-1)
            dist.all_to_all_single(out, every)
            assert torch.equal(out, expected[rank].repeat(size)), count
            dist.reduce_scatter_tensor(one, out)
            assert torch.equal(one, sum(expected)), count
            for root in range(size):
                fill(one, rank)
                dist.broadcast(one, root)
                assert torch.equal(one, expected[root]), count


def test_calls_that_move_data(pair):
    pair.run(check_moves)


def check_one_behind_another() -> None:
    """Calls of changing lengths follow each other without a wait.

    No call may overwrite data that a peer still uses.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    where, backend, pool = start()
    with torch.cuda.use_mem_pool(pool):
        tensors = [torch.empty(count, device=where) for count in COUNTS]
    backend.register_mem_pool(pool)
    plain = torch.empty(COUNTS[0], device=where)
    wrong = torch.zeros((), dtype=torch.int64, device=where)
    for turn in range(60):
        for data in (*tensors, plain):
            data.fill_(turn + rank)
            dist.all_reduce(data)
            wrong += (data != size * turn + size * (size - 1) / 2).sum()
    assert int(wrong) == 0


def test_calls_one_behind_another(pair):
    pair.run(check_one_behind_another)


def check_graph() -> None:
    size = dist.get_world_size()
    where, backend, pool = start()
    with torch.cuda.use_mem_pool(pool):
        data = torch.ones(COUNTS[1], device=where)
    backend.register_mem_pool(pool)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(data)
    data.fill_(1)
    for _ in range(4):
        graph.replay()
    torch.cuda.synchronize()
    assert data.eq(size**4).all()


def test_a_captured_call_runs_again(pair, request):
    if request.node.callspec.params["pair"] == "native":
        pytest.skip("through the host nothing is captured")
    pair.run(check_graph)


def check_dropped() -> None:
    """Tensors are dropped during their calls; their memory is freed and allocated again."""
    rank, size = dist.get_rank(), dist.get_world_size()
    where, backend, pool = start()
    for turn in range(20):
        with torch.cuda.use_mem_pool(pool):
            data = torch.full((COUNTS[turn % 2],), rank + turn, device=where, dtype=torch.float32)
        if turn % 5 == 0:
            backend.register_mem_pool(pool)
        work = dist.all_reduce(data, async_op=True)
        seen = work.get_future().then(lambda done: done.value()[0].clone())
        del data, work
        assert seen.wait().eq(size * turn + size * (size - 1) / 2).all()
    del pool
    torch.cuda.empty_cache()
    again = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(again):
        data = torch.full((COUNTS[1],), float(rank), device=where)
    dist.all_reduce(data)
    assert data.eq(size * (size - 1) / 2).all()


def test_memory_that_is_dropped_in_flight(pair):
    pair.run(check_dropped)


def check_of_the_group() -> None:
    where, backend, _ = start()
    assert backend.supports_tensor_alloc(where)
    data = backend.allocate_tensor(COUNTS[1], dtype=torch.float32, device=where)
    assert data.shape == (COUNTS[1],) and data.device == where
    backend.register_mem_pool()
    fill(data, dist.get_rank())
    expected = sum(numbers(COUNTS[1], r, data) for r in range(dist.get_world_size()))
    dist.all_reduce(data)
    assert torch.equal(data, expected)
    with pytest.raises(ValueError, match="CUDA device"):
        backend.allocate_tensor(10, dtype=torch.float32, device=torch.device("cpu"))


def test_tensors_of_the_group(pair):
    pair.run(check_of_the_group)


def check_ddp() -> None:
    os.environ["DDP_DISABLE_COMM_MEM"] = "0"
    try:
        checks.check_ddp()
    finally:
        del os.environ["DDP_DISABLE_COMM_MEM"]


def test_buckets_of_ddp(pair):
    pair.run(check_ddp)


def check_fsdp2() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    where, backend, _ = start()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(640, 640), torch.nn.ReLU(), torch.nn.Linear(640, 8))
    model = model.to(where)
    data = torch.randn(16, 640, generator=torch.Generator().manual_seed(1)).to(where)
    model(data).square().mean().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    fully_shard(model, mesh=init_device_mesh("cuda", (dist.get_world_size(),)))
    model.set_allocate_memory_from_process_group_for_comm(True)
    for turn in range(3):
        if turn == 1:
            backend.register_mem_pool()
        model.zero_grad()
        model(data).square().mean().backward()
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad.full_tensor(), gradient)


def test_fsdp2_in_memory_of_the_group(pair):
    pair.run(check_fsdp2)
