"""Work handles, futures, hooks and the profiler."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

CPU = torch.device("cpu")


def expected_sum() -> int:
    return sum(range(dist.get_world_size()))


def check_future_value() -> None:
    rank = dist.get_rank()
    tensor = torch.full((5,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    future.wait()
    assert future.done()
    assert isinstance(future.value(), list)
    assert future.value()[0].data_ptr() == tensor.data_ptr()
    assert tensor.eq(expected_sum()).all()
    # A future requested after the call's end is complete at once.
    other = dist.all_reduce(torch.ones(1), async_op=True)
    other.wait()
    assert other.is_completed()
    assert other.is_success()
    assert other.get_future().done()
    assert other.result()[0].item() == dist.get_world_size()
    assert other._get_duration() >= 0


def test_a_future_holds_a_list_of_tensors(pool):
    pool.run(check_future_value)


def check_strided_future() -> None:
    memory = torch.zeros(200)
    strided = memory[::2]
    strided += dist.get_rank()
    seen = []
    future = dist.all_reduce(strided, async_op=True).get_future()
    future.then(lambda f: seen.append(f.value()[0].clone())).wait()
    assert seen[0].eq(expected_sum()).all()
    assert memory[::2].eq(expected_sum()).all()
    assert memory[1::2].eq(0).all()


def test_fault_17_copies_are_back_before_the_future_completes(pool):
    pool.run(check_strided_future)


def check_chained(depth: int) -> None:
    # Like PowerSGD's, this callback waits for the next collective of the same group.
    def again(left: int):
        def step(future):
            tensor = future.value()[0]
            if left == 0:
                return tensor
            return dist.all_reduce(tensor, async_op=True).get_future().then(again(left - 1)).wait()

        return step

    tensor = torch.ones(1000, dtype=torch.float64)
    first = dist.all_reduce(tensor, async_op=True).get_future()
    first.then(again(depth)).wait()
    assert tensor.eq(float(dist.get_world_size()) ** (depth + 1)).all()


def test_a_callback_may_wait_for_another_collective(pool):
    for depth in (1, 4):
        pool.run(check_chained, depth)


def check_failed_future() -> None:
    group = dist.new_group([0, 1], timeout=timedelta(milliseconds=500))
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        future = work.get_future()
        texts = []
        for attempt in (future.wait, work.wait, work.synchronize):
            try:
                attempt()
            except RuntimeError as error:
                texts.append(str(error))
        assert len(texts) == 3, texts
        assert all("timed out" in text for text in texts)
        assert not work.is_success()
        assert work.is_completed()
    dist.barrier()


def test_the_future_raises_the_failure_too(pool):
    pool.run(check_failed_future)


def check_kinds_of_errors() -> None:
    group = dist.new_group([0, 1], timeout=timedelta(milliseconds=300))
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError, match="timed out"):
            dist.barrier(group)
        with pytest.raises(dist.DistBackendError):
            dist.barrier(group)
    with pytest.raises(ValueError, match="ProcessGroupMCCL::broadcast"):
        options = dist.BroadcastOptions()
        options.rootRank = 99
        dist.group.WORLD.broadcast([torch.ones(1)], options)
    dist.barrier()


def test_errors_have_the_types_that_torch_knows(pool):
    pool.run(check_kinds_of_errors)


def check_dropped_handles() -> None:
    # The works and tensors are dropped at once, so the memory must live until the calls are over.
    for _ in range(30):
        dist.all_reduce(torch.ones(50000), async_op=True)
        dist.all_reduce(torch.ones(100000)[::2], async_op=True)
    dist.barrier()
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    assert tensor.eq(dist.get_world_size()).all()


def test_fault_16_memory_lives_as_long_as_the_call(pool):
    pool.run(check_dropped_handles)


def check_threads() -> None:
    # Each thread has one group. Calls of a group keep their order, and no group blocks another.
    size = dist.get_world_size()
    groups = [dist.new_group(list(range(size))) for _ in range(4)]
    failures = []

    def use(group, value: float) -> None:
        try:
            for _ in range(25):
                tensor = torch.full((3000,), value)
                dist.all_reduce(tensor, group=group)
                assert tensor.eq(value * size).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(g, i + 1.0)) for i, g in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_fault_11_groups_run_beside_each_other(pool):
    pool.run(check_threads)


def check_order_of_async() -> None:
    tensors = [torch.full((n,), 1.0) for n in (1, 100000, 5, 3000, 0, 77)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors for _ in range(3)]
    for work in reversed(works):
        work.wait()
    for tensor in tensors:
        assert tensor.eq(float(dist.get_world_size()) ** 3).all()


def test_async_calls_on_one_tensor_run_in_order(pool):
    pool.run(check_order_of_async)


def check_profiler() -> None:
    rank = dist.get_rank()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        dist.all_reduce(torch.ones(3, 2))
        dist.broadcast(torch.ones(4), 0)
        dist.all_gather([torch.ones(1)] * 4, torch.ones(1))
        dist.barrier()
        if rank == 0:
            dist.send(torch.ones(5), 1)
        elif rank == 1:
            dist.recv(torch.ones(5))
    names = {event.name: event for event in prof.events() if event.name.startswith("mccl:")}
    assert {"mccl:all_reduce", "mccl:broadcast", "mccl:all_gather", "mccl:barrier"} <= set(names)
    assert names["mccl:all_reduce"].is_async
    assert names["mccl:all_reduce"].input_shapes == [[3, 2]]
    assert ("mccl:send" in names) == (rank == 0)
    assert ("mccl:recvAnySource" in names) == (rank == 1)


@pytest.mark.long
def test_the_profiler_sees_titles_and_shapes(pool):
    pool.run(check_profiler)


def check_completion_hook() -> None:
    world = dist.group.WORLD
    group = dist.new_group([0, 1, 2, 3])
    assert not world._has_hooks()
    seen = []
    group._register_on_completion_hook(seen.append)
    assert group._has_hooks()
    for _ in range(5):
        dist.all_reduce(torch.ones(10), group=group)
    dist.barrier(group)
    group._wait_for_pending_works()
    assert [info.op_type.name for info in seen].count("ALLREDUCE") == 5
    assert len(seen) == 6
    assert all(info.active_duration >= timedelta(0) for info in seen)
    assert len({info.seq for info in seen}) == 6
    group._enable_collectives_timing()
    dist.destroy_process_group(group)


def test_completion_hooks(pool):
    pool.run(check_completion_hook)


def check_sequence() -> None:
    backend = dist.group.WORLD._get_backend(CPU)
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    dist.barrier()
    assert backend._get_sequence_number_for_group() == before + 2
    group = dist.new_group([0, 1, 2, 3])
    fresh = group._get_backend(CPU)
    fresh._set_sequence_number_for_group()
    assert fresh._get_sequence_number_for_group() == 0


def test_sequence_numbers(pool):
    pool.run(check_sequence)


def check_metrics() -> None:
    import mccl

    mccl.reset_metrics()
    group = dist.new_group([0, 1, 2, 3])
    tensor = torch.zeros(1)
    for _ in range(5100):
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, group=group)
    summary = mccl.get_metrics()
    assert summary is not None
    assert summary.total_ops >= 10200
    assert summary.total_errors == 0
    assert summary.total_bytes_sent > 0
    record = mccl.flight_record()
    assert record is not None
    last = [call for call in record["calls"] if call["call"] == "all_reduce"][-2:]
    assert [(call["bytes"], call["dtype"], call["state"]) for call in last] == [
        (4, "f32", "done")
    ] * 2
    assert len({call["group"] for call in last}) == 2


def test_fault_30_metrics_count_every_call_of_every_group(pool):
    pool.run(check_metrics)


def check_detail() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((4,), float(rank))
    dist.all_reduce(tensor)
    assert tensor.eq(expected_sum()).all()
    output = torch.zeros(size)
    dist.all_gather_into_tensor(output, torch.tensor([float(rank)]))
    assert output.tolist() == list(range(size))
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.ones(3), (rank + 1) % size),
            dist.P2POp(dist.irecv, tensor[:3], (rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    group = dist.new_group(list(range(size)), timeout=timedelta(seconds=5))
    with pytest.raises(RuntimeError, match=r"mismatch|Detected"):
        dist.all_reduce(torch.ones(4 + (rank == 1)), group=group)


def detail_everywhere(on: bool) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL if on else dist.DebugLevel.OFF)


def test_detail_debug_mode(pool):
    pool.run(detail_everywhere, True, group=False)
    pool.run_and_break(check_detail)
    pool.run(detail_everywhere, False, group=False)
