"""torch.distributed on CUDA tensors, and on CUDA and CPU tensors in the same call."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist

KINDS = ["cuda", "mixed"]
EXACT = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
SIZES = [0, 1, 7, 1000, 1_000_003]


def through_host(pinned_limit_bytes: int = 1 << 30) -> None:
    """Selects the path through the host, which `auto` takes only if ranks share a GPU."""
    import mccl

    mccl.init(backend="native", pinned_limit_bytes=pinned_limit_bytes)


def place(kind: str) -> torch.device:
    """Returns the device of this rank's tensors. For "mixed", odd ranks use the CPU."""
    rank = dist.get_rank()
    if kind == "mixed" and rank % 2 == 1:
        return torch.device("cpu")
    return torch.device("cuda", rank % torch.cuda.device_count())


def numbers(rank: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Returns small whole numbers, whose sums are exact in every type."""
    return ((torch.arange(count, device=device) + rank) % 5).to(dtype)


def check_all_reduce(kind: str, dtype: torch.dtype) -> None:
    rank, size, where = dist.get_rank(), dist.get_world_size(), place(kind)
    for count in SIZES:
        data = numbers(rank, count, dtype, where)
        dist.all_reduce(data)
        expected = sum(numbers(r, count, dtype, where) for r in range(size))
        assert torch.equal(data, expected), (count, dtype)
        if dtype.is_complex:
            continue
        data = numbers(rank, count, dtype, where)
        dist.all_reduce(data, op=dist.ReduceOp.MAX)
        every = [numbers(r, count, dtype, where) for r in range(size)]
        assert torch.equal(data, torch.stack(every).amax(0) if count else data)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_all_reduce_of_every_type(pool, kind, dtype):
    pool.run(check_all_reduce, kind, dtype)


def check_moves(kind: str) -> None:
    rank, size, where = dist.get_rank(), dist.get_world_size(), place(kind)
    for count in SIZES:
        mine = numbers(rank, count, torch.float32, where)
        every = [numbers(r, count, torch.float32, where) for r in range(size)]
        whole = torch.empty(size * count, device=where)
        dist.all_gather_into_tensor(whole, mine)
        assert torch.equal(whole, torch.cat(every))
        parts = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(parts, mine)
        assert all(torch.equal(a, b) for a, b in zip(parts, every, strict=True))
        back = torch.empty_like(whole)
        dist.all_to_all_single(back, whole)
        assert torch.equal(back, every[rank].repeat(size))
        out = torch.empty(count, device=where)
        dist.reduce_scatter_tensor(out, whole)
        assert torch.equal(out, every[rank] * size)
        for root in range(size):
            data = mine.clone()
            dist.broadcast(data, root)
            assert torch.equal(data, every[root])
            data = mine.clone()
            dist.reduce(data, root)
            assert torch.equal(data, sum(every) if rank == root else mine)
            dist.gather(mine, parts if rank == root else None, root)
            if rank == root:
                assert all(torch.equal(a, b) for a, b in zip(parts, every, strict=True))
            dist.scatter(out, every if rank == root else None, root)
            assert torch.equal(out, every[rank])


@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_move_data(pool, kind):
    pool.run(check_moves, kind)


def check_uneven(kind: str) -> None:
    rank, size, where = dist.get_rank(), dist.get_world_size(), place(kind)
    every = [numbers(r, 100 * r, torch.int32, where) for r in range(size)]
    parts = [torch.empty_like(one) for one in every]
    dist.all_gather(parts, every[rank])
    assert all(torch.equal(a, b) for a, b in zip(parts, every, strict=True))
    given = [rank + peer for peer in range(size)]
    rows = torch.full((sum(given), 3), float(rank), device=where)
    taken = torch.empty(sum(given), 3, device=where)
    dist.all_to_all_single(taken, rows, given, given)
    for peer, piece in enumerate(taken.split(given)):
        assert piece.eq(peer).all()


@pytest.mark.parametrize("kind", KINDS)
def test_uneven_parts(pool, kind):
    pool.run(check_uneven, kind)


def check_strided(kind: str) -> None:
    rank, size, where = dist.get_rank(), dist.get_world_size(), place(kind)
    whole = torch.zeros(64, 33, device=where)
    view = whole[:, 1::2].t()
    view.fill_(rank + 1.0)
    dist.all_reduce(view)
    assert view.eq(size * (size + 1) / 2).all()
    assert whole[:, ::2].eq(0).all()
    several = [torch.ones(5, device=where), torch.ones(7, 3, device=where).t()]
    dist.all_reduce_coalesced(several)
    assert all(one.eq(size).all() for one in several)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_strided_tensors(pool, kind):
    pool.run(check_strided, kind)


def check_messages(kind: str) -> None:
    rank, size, where = dist.get_rank(), dist.get_world_size(), place(kind)
    for count in (1, 100_000):
        got = torch.zeros(count, device=where)
        mine = torch.full((count,), float(rank), device=where)
        before, after = (rank - 1) % size, (rank + 1) % size
        operations = [
            dist.P2POp(dist.irecv, got, before),
            dist.P2POp(dist.isend, mine, after),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        assert got.eq(before).all()
        receive = dist.irecv(got, after, tag=3)
        dist.send(mine, before, tag=3)
        receive.wait()
        assert got.eq(after).all()


@pytest.mark.parametrize("kind", KINDS)
def test_messages(pool, kind):
    pool.run(check_messages, kind)


def check_host_goes_on() -> None:
    where = place("cuda")
    data = torch.zeros(1000, device=where)
    dist.all_reduce(data)  # the first call sets up everything that later calls need
    torch.cuda._sleep(1_000_000_000)  # about half a second of GPU time
    data.fill_(1)
    work = dist.all_reduce(data, async_op=True)
    work.wait()
    result = data * 2  # queued after the call, on the GPU
    assert not work.is_completed(), "the host has waited for the GPU"
    assert result.eq(2 * dist.get_world_size()).all()
    other = torch.cuda.Stream()
    work = dist.all_reduce(data, async_op=True)
    with torch.cuda.stream(other):
        work.wait()
        seen = data.clone()
    other.synchronize()
    assert seen.eq(dist.get_world_size() ** 2).all()


def test_wait_does_not_stop_the_host(pool):
    pool.run(check_host_goes_on)


def check_future() -> None:
    size, where = dist.get_world_size(), place("cuda")
    data = torch.ones(100_000, device=where)
    future = dist.all_reduce(data, async_op=True).get_future()
    halved = future.then(lambda done: done.value()[0] / 2)
    assert halved.wait().eq(size / 2).all()
    for _ in range(200):  # dropped tensors stay valid until their calls are over
        dist.all_reduce(torch.ones(10_000, device=where), async_op=True)
    torch.cuda.synchronize()
    dist.barrier()


def test_futures_and_tensors_that_are_dropped(pool):
    pool.run(check_future)


def check_profiler_ends_first() -> None:
    """A profiler ends while the GPU is still busy with the call, because wait() does not block the
    host.

    The call must not report to the profiler after that.
    """
    where = place("cuda")
    busy = torch.ones(4096, 4096, device=where)
    for _ in range(40):
        with torch.autograd.profiler.profile(record_shapes=True) as seen:
            for _ in range(4):
                busy @ busy
            data = torch.ones(100_000, device=where)
            dist.all_reduce(data, async_op=True).wait()
        events = [event.name for event in seen.function_events]
        assert events.count("mccl:all_reduce") == 1, events
        assert data.eq(dist.get_world_size()).all()


def test_a_profiler_that_ends_before_the_call(pool):
    pool.run(check_profiler_ends_first)


def check_order_of_both_kinds() -> None:
    size, where = dist.get_world_size(), place("cuda")
    on_gpu = torch.ones(300_000, device=where)
    on_cpu = torch.ones(10)
    for _ in range(5):
        torch.cuda._sleep(20_000_000)
        dist.all_reduce(on_gpu, async_op=True)
        dist.all_reduce(on_cpu)
        dist.barrier()
        torch.cuda.synchronize()
        on_gpu /= size
        on_cpu /= size
    torch.cuda.synchronize()
    assert on_cpu.eq(1).all() and on_gpu.eq(1).all()


def test_calls_of_both_kinds_keep_their_order(pool):
    pool.run(check_order_of_both_kinds)


def check_ddp() -> None:
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(dist.get_rank())
    where = place("cuda")
    torch.cuda.set_device(where)
    model = torch.nn.Sequential(torch.nn.Linear(50, 200), torch.nn.ReLU(), torch.nn.Linear(200, 1))
    model = DistributedDataParallel(model.to(where), device_ids=[where.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(64, 50, device=where)).square().mean().backward()
        optimizer.step()
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()
    every = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(every, weights)
    assert all(torch.equal(weights, other) for other in every)


def test_ddp(pool):
    pool.run(check_ddp)


def check_fsdp2() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    where = place("cuda")
    torch.cuda.set_device(where)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model = model.to(where)
    alone = [p.detach().clone() for p in model.parameters()]
    data = torch.randn(16, 64, generator=torch.Generator().manual_seed(1)).to(where)
    model(data).square().mean().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    fully_shard(model, mesh=init_device_mesh("cuda", (dist.get_world_size(),)))
    model(data).square().mean().backward()
    for parameter, value, gradient in zip(model.parameters(), alone, gradients, strict=True):
        assert torch.equal(parameter.full_tensor(), value)
        torch.testing.assert_close(parameter.grad.full_tensor(), gradient)


def test_fsdp2(pool):
    pool.run(check_fsdp2)


def check_functional() -> None:
    import torch.distributed._functional_collectives as functional

    size, where = dist.get_world_size(), place("cuda")
    group = dist.group.WORLD
    total = functional.all_reduce(torch.ones(100, device=where), "sum", group)
    assert (total + 0).eq(size).all()
    whole = functional.all_gather_tensor(torch.ones(4, device=where), 0, group)
    assert functional.wait_tensor(whole).shape[0] == 4 * size
    found = [None] * size
    dist.all_gather_object(found, {"rank": dist.get_rank()})
    assert [one["rank"] for one in found] == list(range(size))


def test_functional_and_object_collectives(pool):
    pool.run(check_functional)


def check_pinned_memory(limit: int) -> None:
    """Pinned memory of a large call is released after the call, down to the limit."""
    import mccl

    size, where = dist.get_world_size(), place("cuda")
    count = 64 << 20
    data = torch.ones(count, device=where, dtype=torch.uint8)
    every = torch.empty(size * count, device=where, dtype=torch.uint8)
    mccl.reset_metrics()
    for _ in range(2):
        dist.all_gather_into_tensor(every, data)
        torch.cuda.synchronize()
        assert every.eq(1).all()
    del every
    deadline = time.monotonic() + 20
    while (metrics := mccl.get_metrics()).pinned_bytes > limit + (1 << 20):
        assert time.monotonic() < deadline, metrics
        time.sleep(0.01)
    assert metrics.peak_pinned_bytes >= (size + 1) * count


def test_pinned_memory_is_bounded_and_counted():
    from rank_pool import RankPool

    limit = 32 << 20
    ranks = RankPool(2)
    try:
        ranks.run(through_host, limit, group=False)
        ranks.run(check_pinned_memory, limit)
    finally:
        ranks.close()


def check_refusals() -> None:
    size, where = dist.get_world_size(), place("cuda")
    data = torch.ones(10, device=where)
    with pytest.raises(ValueError, match="device"):
        dist.all_gather([torch.ones(10) for _ in range(size)], data)
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            with pytest.raises(ValueError, match="captured"):
                dist.all_reduce(data)
        finally:
            graph.capture_end()
    dist.all_reduce(data)
    assert data.eq(size).all()


def test_what_cannot_be_is_refused(pool):
    pool.run(check_refusals)
