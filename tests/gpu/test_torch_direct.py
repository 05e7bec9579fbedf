"""Collectives on GPU memory through NCCL and through MCCL's own kernels, between two ranks."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
import sharing
import test_torch_cuda as checks
import torch
import torch.distributed as dist


@pytest.fixture(scope="module", params=sharing.WAYS)
def pair(request):
    from rank_pool import RankPool

    sharing.skip_what_needs_two_gpus(request.param)
    ranks = RankPool(2)
    ranks.run(sharing.choose, request.param, group=False)
    yield ranks
    ranks.close()


def without_sharing() -> None:
    import mccl

    mccl.init(backend="cuda")


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


def check_first_call_in_a_graph() -> None:
    """Uses a new group, whose ranks have not met on their GPUs yet."""
    where = checks.place("cuda")
    torch.cuda.set_device(where)
    group = dist.new_group()
    data = torch.ones(1000, device=where)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            with pytest.raises(
                ValueError, match="make a first collective on GPU memory before the capture"
            ):
                dist.all_reduce(data, group=group)
        finally:
            graph.capture_end()
    dist.all_reduce(data, group=group)
    assert data.eq(dist.get_world_size()).all()
    dist.destroy_process_group(group)


def test_a_first_call_that_is_captured_is_refused(pair):
    pair.run(check_first_call_in_a_graph)


def test_a_captured_call_runs_again(pair):
    pair.run(check_graph)


def check_sizes() -> None:
    rank, size, where = dist.get_rank(), dist.get_world_size(), checks.place("cuda")
    generator = torch.Generator(device=where).manual_seed(rank)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for count in (1, 3, 8, 63, 513, 70_001, 131_073, 1_000_003, 9_000_001, 20_000_000):
            whole = torch.randn(count + 3, generator=generator, device=where).to(dtype)
            for offset in (0, 1):  # aligned to the 16 bytes of a thread's read, and unaligned
                data = (
                    whole[offset : offset + count].clone() if offset == 0 else whole[1 : count + 1]
                )
                every = [torch.empty_like(data) for _ in range(size)]
                dist.all_gather(every, data)
                expected = sum(one.float() for one in every).to(dtype)
                out = data.clone() if offset == 0 else data
                for _ in range(3 if count < 100_000 else 1):
                    again = out.clone()
                    dist.all_reduce(again)
                    assert torch.equal(again, expected), (dtype, count, offset)
                dist.all_reduce(out, op=dist.ReduceOp.AVG)
                mean = (sum(one.float() for one in every) / size).to(dtype)
                # NCCL divides before it adds, which rounds tiny values.
                torch.testing.assert_close(out, mean, rtol=1e-2, atol=1e-6)


def test_sums_of_every_size_and_alignment(pair):
    pair.run(check_sizes)


def check_graph_of_sizes() -> None:
    size, where = dist.get_world_size(), checks.place("cuda")
    torch.cuda.set_device(where)
    tensors = [torch.zeros(count, device=where) for count in (10, 5000, 300_000, 5_000_000)]
    for one in tensors:
        dist.all_reduce(one)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for one in tensors:
            dist.all_reduce(one)
    for one in tensors:
        one.fill_(1)
    for step in range(1, 6):
        graph.replay()
        if step % 2 == 0:  # between replays, calls outside the graph
            dist.all_reduce(torch.ones(7, device=where))
    torch.cuda.synchronize()
    assert all(one.eq(size**5).all() for one in tensors)


def test_graphs_of_several_sizes(pair):
    pair.run(check_graph_of_sizes)


def check_late() -> None:
    where = checks.place("cuda")
    group = dist.new_group(timeout=timedelta(seconds=2))
    data = torch.ones(1000, device=where)
    dist.all_reduce(data, group=group)
    if dist.get_rank() == 0:
        work = dist.all_reduce(data, group=group, async_op=True)
        with pytest.raises(RuntimeError, match=r"timed out|waited for rank 1"):
            work.wait(timedelta(seconds=30))
        torch.cuda.synchronize()
        with pytest.raises(RuntimeError):
            dist.all_reduce(data, group=group)
    dist.barrier()


def test_a_rank_that_does_not_come_is_told_of(pair):
    pair.run(check_late)


def check_order(kind: str) -> None:
    checks.check_order_of_both_kinds()
    checks.check_host_goes_on()
    checks.check_future()


def test_streams_and_order(pair):
    pair.run(check_order, "cuda")


def test_two_ranks_of_a_gpu_go_through_the_host():
    from rank_pool import RankPool

    ranks = RankPool(2 * torch.cuda.device_count())
    try:
        ranks.run(without_sharing, group=False)
        ranks.run(checks.check_all_reduce, "cuda", torch.float32)
        ranks.run(checks.check_moves, "cuda")
    finally:
        ranks.close()


def check_lengths_of_rounds() -> None:
    """Makes calls of one round back to back. None may overwrite data that a peer still reads."""
    rank, size, where = dist.get_rank(), dist.get_world_size(), checks.place("cuda")
    count = 300_000
    mine = torch.empty(count, device=where, dtype=torch.int32)
    whole = torch.empty(count * size, device=where, dtype=torch.int32)
    wrong = torch.zeros((), device=where, dtype=torch.int64)
    for turn in range(200):
        mine.fill_(1000 * turn + rank)
        dist.all_gather_into_tensor(whole, mine)
        for peer in range(size):
            wrong += (whole[peer * count : (peer + 1) * count] != 1000 * turn + peer).sum()
        dist.all_to_all_single(whole[: count // size * size].clone(), mine[: count // size * size])
    assert int(wrong) == 0


def test_short_calls_in_rounds_do_not_overtake(pair):
    pair.run(check_lengths_of_rounds)


def check_now() -> None:
    size, where = dist.get_world_size(), checks.place("cuda")
    torch.cuda.set_device(where)
    own = dist.group.WORLD._get_backend(where)
    data = torch.ones(1000, device=where)
    for _ in range(4):
        own.all_reduce_now(data)
        data /= size
    own.all_reduce_now(data, dist.ReduceOp.SUM)
    assert data.eq(size).all()
    strided = torch.ones(10, 7, device=where).t()
    own.all_reduce_now(strided)
    assert strided.eq(size).all()
    host = torch.ones(5)
    own.all_reduce_now(host)
    assert host.eq(size).all()
    with pytest.raises(ValueError, match="all_reduce_now"):
        own.all_reduce_now(torch.ones(2, device=where, dtype=torch.complex32))


def test_calls_without_a_work(pair):
    pair.run(check_now)


def check_other_stream() -> None:
    """A call runs on the caller's stream, and another stream waits for it.

    The event that marks the call's end is recorded only for that wait.
    """
    size, where = dist.get_world_size(), checks.place("cuda")
    torch.cuda.set_device(where)
    data = torch.ones(1_000_000, device=where)
    dist.all_reduce(data)
    group = dist.group.WORLD
    options = dist.AllreduceOptions()
    options.asyncOp = False
    data.fill_(1)
    work = group._get_backend(where).allreduce([data], options)
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        work.wait()
        seen = data.clone()
    other.synchronize()
    assert seen.eq(size).all()


def test_a_call_of_one_stream_is_waited_for_in_another(pair):
    pair.run(check_other_stream)


def check_split() -> None:
    """Splits off a group of both ranks, and groups of one rank, after the ranks have met."""
    rank, size, where = dist.get_rank(), dist.get_world_size(), checks.place("cuda")
    torch.cuda.set_device(where)
    for count in (1000, 3_000_000):
        dist.all_reduce(torch.ones(count, device=where))
    world, limit = dist.group.WORLD, timedelta(seconds=30)
    whole = world.split_group(list(range(size)), timeout=limit)
    one = world.split_group([rank], timeout=limit)
    first = world.split_group([0], timeout=limit)
    assert (first is None) == (rank != 0)
    for group, members in ((whole, size), (one, 1)):
        for count in (1000, 3_000_000):
            data = torch.ones(count, device=where)
            group.allreduce([data]).wait()
            assert data.eq(members).all(), (members, count)
    parts = [torch.empty(10, device=where, dtype=torch.int64) for _ in range(size)]
    whole.allgather([parts], [torch.full((10,), rank, device=where)]).wait()
    assert all(part.eq(peer).all() for peer, part in enumerate(parts))


def test_groups_that_are_split_off(pair):
    pair.run(check_split)


def check_abort() -> None:
    data = torch.ones(1000, device=checks.place("cuda"))
    dist.all_reduce(data)
    torch.cuda.synchronize()
    with contextlib.suppress(RuntimeError):  # the abort may reach this rank within the barrier
        dist.barrier()
    if dist.get_rank() == 0:
        work = dist.all_reduce(data, async_op=True)
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda")).abort()
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(3))
        with contextlib.suppress(RuntimeError):
            work.wait()
        torch.cuda.synchronize()


def test_an_abort_ends_what_runs(pair):
    pair.run_and_break(check_abort)
