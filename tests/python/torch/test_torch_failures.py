"""Failures: every rank gets the cause in bounded time, and nothing else breaks."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankError, RankPool, end_group

CPU = torch.device("cpu")
SHORT = timedelta(seconds=1)


def error_of(call) -> str:
    """Returns the message of the exception that `call` must raise."""
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        return str(error)
    raise AssertionError("nothing was raised")


def everyone() -> dist.ProcessGroup:
    """Makes a group of all ranks that a test may break."""
    return dist.new_group(list(range(dist.get_world_size())))


def healthy() -> None:
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.eq(dist.get_world_size()).all()


# --- time ---------------------------------------------------------------------------------------


def check_timeout() -> None:
    group = dist.new_group(list(range(dist.get_world_size())), timeout=SHORT)
    if dist.get_rank() == 0:
        text = error_of(lambda: dist.barrier(group))
        assert re.search(" (Timed out|closed|timeout) ", text), text
        assert "barrier" in text
        assert error_of(lambda: dist.all_reduce(torch.ones(1), group=group))
        assert group._get_backend(CPU).get_error().name != "SUCCESS"
    healthy()
    if dist.get_rank() == 1:
        # This call is too late: the group has failed, so the call fails at once.
        assert error_of(lambda: dist.barrier(group))
    healthy()


def test_fault_25_a_collective_that_others_do_not_join_times_out(pool):
    pool.run(check_timeout)


def check_timeout_of_one_call() -> None:
    group = everyone()
    if dist.get_rank() == 0:
        options = dist.AllreduceOptions()
        options.timeout = timedelta(milliseconds=300)
        text = error_of(lambda: group.allreduce([torch.ones(1)], options).wait())
        assert "timed out after 0.3" in text
    healthy()


def test_fault_25_a_call_has_a_timeout_of_its_own(pool):
    pool.run(check_timeout_of_one_call)


def check_set_timeout() -> None:
    group = everyone()
    group._get_backend(CPU).set_timeout(SHORT)
    if dist.get_rank() == 2:
        text = error_of(lambda: dist.all_reduce(torch.ones(1), group=group))
        begin = r"^all_reduce #\d+ \(sum of 1 f32\) on rank 2 failed: it timed out after "
        assert re.search(begin, text), text
        assert "waiting for rank 0" in text, text
        assert "set a longer timeout" in text, text
        # The error message contains each part only once.
        assert [text.count(part) for part in ("all_reduce", "rank 2", "timed")] == [1, 1, 1], text
    healthy()


def test_the_default_timeout_can_change(pool):
    pool.run(check_set_timeout)


def check_torchs_own_call_sets_the_timeout() -> None:
    group = everyone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns if a backend cannot set its timeout
        dist.distributed_c10d._set_pg_timeout(SHORT, group)
    if dist.get_rank() == 2:
        text = error_of(lambda: dist.all_reduce(torch.ones(1), group=group))
        assert "it timed out after 1" in text, text
    healthy()


def test_set_pg_timeout_sets_the_timeout(pool):
    pool.run(check_torchs_own_call_sets_the_timeout)


def check_wait_with_timeout() -> None:
    rank = dist.get_rank()
    tensor = torch.zeros(2)
    if rank == 1:
        work = dist.irecv(tensor, 0)
        # The wait times out, but the receive continues.
        text = error_of(lambda: work.wait(timedelta(milliseconds=200)))
        assert re.search(r"^\[rank 1\] Timed out : recv from rank 0 .* is not done", text), text
        assert not work.is_completed()
    healthy()
    if rank == 0:
        dist.send(torch.ones(2), 1)
    if rank == 1:
        work.wait()
        assert tensor.eq(1).all()
    healthy()


def test_a_wait_that_times_out_does_not_end_the_call(pool):
    pool.run(check_wait_with_timeout)


def check_late_message() -> None:
    rank = dist.get_rank()
    group = dist.new_group([0, 1], timeout=SHORT)
    tensor = torch.zeros(1000)
    if rank == 1:
        text = error_of(lambda: dist.recv(tensor, 0, group=group))
        assert re.search(r"^recv from rank 0 .* on rank 1 failed: it timed out", text), text
    dist.barrier()
    if rank == 0:
        # The message may be sent or fail, but it must not be received.
        with contextlib.suppress(RuntimeError):
            dist.send(torch.ones(1000), 1, group=group)
    healthy()
    assert tensor.eq(0).all()


def test_fault_15_a_late_message_is_written_nowhere(pool):
    pool.run(check_late_message)


# --- ranks that differ --------------------------------------------------------------------------


def differ_in_size(group, rank):
    dist.all_reduce(torch.ones(10 + (rank == 2)), group=group)


def differ_in_dtype(group, rank):
    dist.all_reduce(
        torch.ones(10, dtype=torch.float64 if rank == 1 else torch.float32), group=group
    )


def differ_in_op(group, rank):
    op = dist.ReduceOp.MAX if rank == 3 else dist.ReduceOp.SUM
    dist.all_reduce(torch.ones(10), op, group=group)


def differ_in_root(group, rank):
    dist.broadcast(torch.ones(10), 1 if rank == 3 else 0, group=group)


def differ_in_call(group, rank):
    if rank == 0:
        dist.barrier(group)
    else:
        dist.all_reduce(torch.ones(10), group=group)


def differ_in_gather_size(group, rank):
    count = 4 + (rank == 1)
    output = torch.zeros(count * dist.get_world_size())
    dist.all_gather_into_tensor(output, torch.ones(count), group=group)


def differ_in_splits(group, rank):
    size = dist.get_world_size()
    rows = [1] * size
    if rank == 0:
        rows[1] = 2  # rank 1 expects one row
    output = torch.zeros(size)
    dist.all_to_all_single(output, torch.ones(sum(rows)), [1] * size, rows, group=group)


def call_and_barrier(call, group, rank) -> None:
    # A root whose data has been sent may complete before any rank sees the difference.
    call(group, rank)
    dist.barrier(group)


def check_difference(call) -> None:
    group = everyone()
    rank = dist.get_rank()
    text = error_of(lambda: call_and_barrier(call, group, rank))
    assert "timed out" not in text.lower(), text
    assert re.search(r"rank \d", text), text
    healthy()


@pytest.mark.parametrize(
    "call",
    [
        differ_in_size,
        differ_in_dtype,
        differ_in_op,
        differ_in_root,
        differ_in_call,
        differ_in_gather_size,
        differ_in_splits,
    ],
)
def test_different_calls_are_an_error_on_every_rank(pool, call):
    pool.run(check_difference, call)


def check_message_size() -> None:
    group = everyone()
    rank = dist.get_rank()
    if rank == 0:
        dist.isend(torch.ones(5), 1, group=group)
    elif rank == 1:
        text = error_of(lambda: dist.recv(torch.ones(4), 0, group=group))
        assert "20" in text or "5" in text, text
    healthy()


def test_a_message_of_another_size(pool):
    pool.run(check_message_size)


# --- wrong arguments ----------------------------------------------------------------------------


def check_arguments() -> None:
    group = dist.group.WORLD
    size = dist.get_world_size()
    backend = group._get_backend(CPU)
    bitwise = dist.AllreduceOptions()
    bitwise.reduceOp = dist.ReduceOp.BAND
    largest = dist.AllreduceOptions()
    largest.reduceOp = dist.ReduceOp.MAX
    bad_root = dist.BroadcastOptions()
    bad_root.rootRank = size
    cases = [
        (lambda: backend.allreduce([torch.ones(1, device="meta")]), "CPU"),
        (lambda: backend.allreduce([torch.ones(1), torch.ones(1)]), "single-element"),
        (lambda: backend.allreduce([torch.ones(2, 2).to_sparse_csr()]), "layout"),
        (lambda: group.allreduce([torch.ones(2)], bitwise), "band"),
        (lambda: group.allreduce([torch.ones(2, dtype=torch.cfloat)], largest), "Complex"),
        (lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn)), "Float8_e4m3fn"),
        (lambda: group.broadcast([torch.ones(1)], bad_root), "root rank"),
        (lambda: dist.all_gather([torch.ones(1)] * (size - 1), torch.ones(1)), "output list"),
        (lambda: group.allgather([[torch.ones(1)] * size], [torch.ones(2)]), "slot"),
        (
            lambda: group.allgather([[torch.ones(1).int()] * size], [torch.ones(1)]),
            "invalid tensor type",
        ),
        (lambda: dist.all_gather_into_tensor(torch.ones(size + 1), torch.ones(1)), "elements"),
        (lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(2 * size + 1)), "elements"),
        (
            lambda: dist.all_to_all_single(
                torch.ones(size), torch.ones(size), [1] * size, [2] * size
            ),
            "plit",
        ),
        (lambda: dist.all_to_all_single(torch.ones(size + 1), torch.ones(size + 1)), "equally"),
        (lambda: dist.all_reduce(torch.zeros(1).expand(4)), "single memory location"),
        (lambda: dist.isend(torch.ones(1), (dist.get_rank() + 1) % size, tag=-1), "nonnegative"),
    ]
    before = backend._get_sequence_number_for_group()
    for call, expected in cases:
        text = error_of(call)
        assert expected in text, (expected, text)
    assert backend._get_sequence_number_for_group() == before
    healthy()


def test_wrong_arguments_leave_the_group_as_it_was(pool):
    pool.run(check_arguments)


# --- abort, death, monitored barrier ------------------------------------------------------------


def check_abort() -> None:
    group = everyone()
    if dist.get_rank() == 3:
        group.abort()
    else:
        text = error_of(lambda: dist.all_reduce(torch.ones(1000), group=group))
        assert "aborted by rank 3" in text, text
    assert error_of(lambda: dist.barrier(group))
    healthy()


def test_an_abort_reaches_every_rank_with_its_reason(pool):
    pool.run(check_abort)


def check_abort_of_own_send() -> None:
    rank = dist.get_rank()
    group = dist.new_group([0, 1])
    if rank == 0:
        # The message has no receiver and fits no buffer.
        timer = threading.Timer(0.3, group.abort)
        timer.start()
        text = error_of(lambda: dist.send(torch.ones(1 << 24), 1, group=group))
        assert "abort" in text
        timer.join()
    healthy()


def test_fault_12_abort_needs_no_lock_of_a_stuck_send(pool):
    pool.run(check_abort_of_own_send)


def check_death() -> str:
    if dist.get_rank() == 2:
        os._exit(3)
    begin = time.monotonic()
    text = error_of(lambda: dist.all_reduce(torch.ones(1 << 20)))
    assert "2" in text, text
    assert time.monotonic() - begin < 25, "only the timeout ended it"
    return text


def test_a_dead_peer_is_an_error_that_names_it():
    pool = RankPool(3)
    try:
        with pytest.raises(RankError) as caught:
            pool.run(check_death)
        assert str(caught.value) == "ranks [2]: the process died"
    finally:
        pool.close()


def check_start_without_the_dead(path: str) -> None:
    if dist.get_rank() == 2:
        os._exit(3)
    assert error_of(lambda: dist.all_reduce(torch.ones(1 << 20)))
    rank = dist.get_rank()
    end_group()
    dist.init_process_group("mccl", store=dist.FileStore(path, 2), rank=rank, world_size=2)
    healthy()


def test_fault_24_the_survivors_of_a_death_start_again():
    pool = RankPool(3)
    try:
        with pytest.raises(RankError) as caught:
            pool.run(check_start_without_the_dead, pool.store_path())
        assert str(caught.value) == "ranks [2]: the process died"
    finally:
        pool.close()


ALONE = r"""
import os, re, sys
import torch, torch.distributed as dist
import mccl

def threads():
    return len(os.listdir("/proc/self/task"))

mccl.init(port_base=0, connect_timeout=0.5)
before = threads()
for number in range(3):
    try:
        store = dist.FileStore(f"{sys.argv[1]}{number}", 2)
        dist.init_process_group("mccl", store=store, rank=0, world_size=2)
    except RuntimeError as error:
        assert re.search(r"Timed out.*\b1\b", str(error)), error
    else:
        raise AssertionError("nobody was there")
    assert not dist.is_initialized()
    assert threads() == before, (threads(), before)
dist.init_process_group("mccl", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
dist.destroy_process_group()
print("done")
"""


@pytest.mark.long
def test_fault_20_a_connect_timeout_leaves_the_process_whole(tmp_path: Path):
    command = [sys.executable, "-c", ALONE, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def barrier_of_the_group(group, timeout, wait_all_ranks) -> None:
    group.monitored_barrier(timeout, wait_all_ranks)


def check_monitored_barrier(barrier) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    world = dist.group.WORLD
    for wait_all in (False, True, False):
        barrier(world, timedelta(seconds=20), wait_all)
        healthy()
    for missing, wait_all in (([2], False), ([1, 3], False), ([1, 3], True)):
        group = everyone()
        if rank not in missing:
            text = error_of(lambda g=group, w=wait_all: barrier(g, SHORT, w))
            if rank == 0:
                names = ", ".join(map(str, missing)) if wait_all else str(missing[0])
                prefix = "Ranks" if wait_all else "Rank"
                assert f"{prefix} {names} failed to pass monitoredBarrier" in text, text
            else:
                assert f"Rank {rank} successfully reached monitoredBarrier" in text, text
        healthy()
    if rank == 0:
        group = world._get_backend(CPU)
        text = error_of(lambda: group.monitored_barrier(timeout=timedelta(0)))
        assert "Rank 0 timed out in monitoredBarrier" in text
    healthy()
    assert size == 4


@pytest.mark.parametrize("barrier", [barrier_of_the_group, dist.monitored_barrier])
def test_monitored_barrier_names_the_missing_ranks(pool, barrier):
    pool.run(check_monitored_barrier, barrier)


def check_monitored_barrier_by_default() -> None:
    dist.monitored_barrier()
    pair = dist.new_group([0, 2])
    if dist.get_rank() in (0, 2):
        dist.monitored_barrier(pair, 20.0, wait_all_ranks=True)
    else:
        with pytest.warns(UserWarning, match="does not belong to"):
            dist.monitored_barrier(pair)
    healthy()


def test_monitored_barrier_has_the_arguments_of_torchs(pool):
    pool.run(check_monitored_barrier_by_default)


def check_shut_down() -> None:
    group = everyone()
    backend = group._get_backend(CPU)
    healthy()
    group.shutdown()
    assert "has been shut down" in error_of(lambda: backend.barrier())
    assert backend.get_error().name == "SUCCESS"
    healthy()


def test_a_group_that_was_shut_down_says_so(pool):
    pool.run(check_shut_down)
