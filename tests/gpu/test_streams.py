"""Streams and calls that go through the host, on two ranks, which may share a GPU."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from test_torch_cuda import place, through_host

TIMEOUT = timedelta(seconds=20)
#: More streams than torch's pool has.
STREAMS = 40


def by_nccl() -> None:
    import mccl

    mccl.init(backend="nccl")


@pytest.fixture(scope="module")
def each():
    """Two ranks that use NCCL, each in a group of its own, so that they may share a GPU."""
    from rank_pool import RankPool

    ranks = RankPool(2)
    ranks.run(by_nccl, group=False)
    yield ranks
    ranks.close()


def group_of_one() -> dist.ProcessGroup:
    return [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]


@pytest.fixture(scope="module")
def pair():
    from rank_pool import RankPool

    ranks = RankPool(2)
    ranks.run(through_host, group=False)
    ranks.start_group(timeout=TIMEOUT)
    yield ranks
    ranks.close()


def check_receives(on_default_stream: bool) -> None:
    other, where = 1 - dist.get_rank(), place("cuda")
    torch.cuda.set_device(where)
    own = torch.cuda.default_stream() if on_default_stream else torch.cuda.Stream()
    # The first launch of a kernel loads it, for which CUDA may wait for all streams. This launch
    # therefore precedes the receives, for which a stream waits.
    assert torch.full((100,), 2.0, device=where).eq(2).all()
    dist.all_reduce(torch.ones(1000, device=where))
    for tag in range(STREAMS):
        got = torch.zeros(100, device=where)
        receive = dist.irecv(got, other, tag=tag)
        with torch.cuda.stream(own):
            data = torch.ones(1000, device=where)
            dist.all_reduce(data, async_op=True).wait()
            assert data.eq(2).all(), "the call has waited for the receive, and with it for its peer"
        dist.send(torch.full((100,), float(tag), device=where), other, tag=tag)
        receive.wait()
        assert got.eq(tag).all()


@pytest.mark.parametrize("on_default_stream", [True, False], ids=["default", "own"])
def test_a_receive_holds_up_no_other_stream(pair, on_default_stream):
    pair.run(check_receives, on_default_stream)


def check_several_receives() -> None:
    """Messages arrive in the reverse order of their receives. Each receive completes on its own."""
    other, where = 1 - dist.get_rank(), place("cuda")
    torch.cuda.set_device(where)
    for _ in range(STREAMS):
        got = [torch.zeros(100, device=where) for _ in range(2)]
        receives = [dist.irecv(one, other, tag=tag) for tag, one in enumerate(got)]
        futures = [receive.get_future() for receive in receives]
        for tag in (1, 0):
            dist.send(torch.full((100,), float(tag), device=where), other, tag=tag)
            receives[tag].wait()
            assert got[tag].eq(tag).all()
            assert futures[tag].wait()[0].eq(tag).all()
            assert receives[tag].get_future().wait()[0].eq(tag).all()


def test_receives_do_not_wait_for_each_other(pair):
    pair.run(check_several_receives)


#: About one second in cycles of the GPU's clock.
SECOND = 2_000_000_000


def check_timeout() -> None:
    """The stream of rank 0 reaches the call too late, after the caller has returned."""
    where = place("cuda")
    torch.cuda.set_device(where)
    data = torch.ones(1000, device=where)
    torch.cuda.synchronize()
    if dist.get_rank() == 0:
        torch.cuda._sleep(6 * SECOND)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="timed out"):
            dist.all_reduce(data)
    with pytest.raises(RuntimeError, match="timed out"):
        dist.barrier()


def test_a_sync_call_that_timed_out_is_raised_by_the_next(pair):
    pair.start_group(timeout=timedelta(seconds=2))
    pair.run_and_break(check_timeout)


def check_destroy(async_op: bool) -> None:
    where = place("cuda")
    torch.cuda.set_device(where)
    data = torch.ones(1000, device=where)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        torch.cuda._sleep(SECOND)
        data.fill_(dist.get_rank() + 1.0)
        work = dist.all_reduce(data, async_op=async_op)
        if async_op:
            work.wait()
    dist.destroy_process_group()
    other.synchronize()
    assert data.eq(3).all()


@pytest.mark.parametrize("async_op", [False, True], ids=["sync", "async"])
def test_destroy_waits_for_calls_of_other_streams(pair, async_op):
    pair.run_and_break(check_destroy, async_op)


def check_destroy_is_bounded() -> None:
    """One receive is awaited by a stream, and its message never arrives."""
    where = place("cuda")
    torch.cuda.set_device(where)
    data = torch.ones(1000, device=where)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        dist.irecv(data, 1 - dist.get_rank()).wait()
    dist.irecv(data, 1 - dist.get_rank(), tag=1)  # no wait() for this one
    dist.destroy_process_group()
    torch.cuda.synchronize()


def test_destroy_ends_with_the_timeout(pair):
    pair.start_group(timeout=timedelta(seconds=3))
    pair.run_and_break(check_destroy_is_bounded)


def check_streams_that_go() -> None:
    import ctypes

    where = place("cuda")
    torch.cuda.set_device(where)
    alone = group_of_one()
    data = torch.ones(1000, device=where)
    dist.all_reduce(data, group=alone)
    cuda = ctypes.CDLL("libcuda.so.1")
    for _ in range(20):
        handle = ctypes.c_void_p()
        assert cuda.cuStreamCreate(ctypes.byref(handle), 1) == 0
        stream = torch.cuda.ExternalStream(handle.value, where)
        with torch.cuda.stream(stream):
            dist.all_reduce(data, group=alone)
            work = alone.allreduce([data])
        stream.synchronize()
        assert cuda.cuStreamDestroy_v2(handle) == 0
        work.wait()
        dist.all_reduce(data, group=alone)
        dist.all_reduce(data, group=alone, async_op=True).wait()
    assert data.eq(1).all()
    dist.destroy_process_group(alone)


def test_a_stream_that_its_owner_destroyed_is_left_alone(each):
    each.run(check_streams_that_go)


def check_captured() -> None:
    """Functional collectives make async calls, and so does torch.compile."""
    import torch.distributed._functional_collectives as functional

    where = place("cuda")
    torch.cuda.set_device(where)
    alone = group_of_one()
    data = torch.ones(1000, device=where)
    dist.all_reduce(data, group=alone)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    beside = torch.cuda.Stream()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        data.add_(1)
        work = dist.all_reduce(data, group=alone, async_op=True)
        with torch.cuda.stream(beside):
            work.wait()
            twice = data * 2
        work.wait()
        torch.cuda.current_stream().wait_stream(beside)
        strided = torch.ones(100, 2, device=where)[:, 0]
        dist.all_reduce(strided, group=alone, async_op=True).wait()
        total = functional.all_reduce(data + twice, "sum", alone) + strided[0]
    for count in range(1, 6):
        graph.replay()
        torch.cuda.synchronize()
        assert data.eq(1 + count).all()
        assert total.eq(3 * (1 + count) + 1).all()
        dist.all_reduce(data, group=alone)  # a call outside the graph, between replays
    dist.destroy_process_group(alone)


def test_an_async_call_is_captured(each):
    each.run(check_captured)


def check_refused_capture() -> None:
    where = place("cuda")
    torch.cuda.set_device(where)
    data = torch.ones(1000, device=where)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for async_op in (False, True):
            with pytest.raises(ValueError, match="being captured"):
                dist.all_reduce(data, async_op=async_op)
    dist.all_reduce(data)
    assert data.eq(dist.get_world_size() ** 2).all()


def test_through_the_host_a_capture_is_refused(pair):
    pair.run(check_refused_capture)


def check_future_in_a_batch() -> None:
    where = place("cuda")
    torch.cuda.set_device(where)
    data = torch.ones(1000, device=where)
    dist.all_reduce(data)
    group = dist.group.WORLD
    group._start_coalescing(where)
    future = group.allreduce([data]).get_future()
    group._end_coalescing(where).wait()
    torch.cuda.synchronize()
    assert future.done()
    assert future.value()[0].eq(4).all()


def test_a_future_of_a_call_in_a_batch_completes(pair):
    pair.run(check_future_in_a_batch)
