"""Failures: evaluation raises the cause on every rank, and nothing else breaks."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import statistics
import threading
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_ranks import MlxRanks, error_of

import mccl.mlx


def healthy(group) -> None:
    assert mx.distributed.all_sum(mx.ones(3), group=group).tolist() == [group.size()] * 3


# --- ranks that differ --------------------------------------------------------------------------


def differ_in_shape(group):
    return mx.distributed.all_sum(mx.ones(10 + (group.rank() == 1)), group=group)


def differ_in_type(group):
    dtype = mx.int32 if group.rank() == 0 else mx.float32
    return mx.distributed.all_sum(mx.ones(10, dtype), group=group)


def differ_in_reduction(group):
    call = mx.distributed.all_max if group.rank() == 1 else mx.distributed.all_sum
    return call(mx.ones(10), group=group)


def differ_in_gathered_shape(group):
    return mx.distributed.all_gather(mx.ones(2 + group.rank()), group=group)


def differ_in_call(group):
    if group.rank() == 0:
        return mx.distributed.all_gather(mx.ones(4), group=group)
    return mx.distributed.all_sum(mx.ones(4), group=group)


def differ_in_root(group):
    return mccl.mlx.broadcast(mx.ones(4), group.rank() % 2, group=group)


def differ_in_rows(group):
    size = group.size()
    rows = [1] * size if group.rank() else [1] * (size - 1) + [2]
    return mccl.mlx.all_gather(mx.ones((1, 2)), rows, group=group)


def check_difference(call) -> None:
    world = mccl.mlx.init(strict=True)
    group = world.split(0)

    def evaluate():
        # A root whose data has been sent may complete before any rank sees the difference.
        mx.eval(call(group))
        mccl.mlx.barrier(group)

    text = error_of(evaluate, RuntimeError)
    assert re.search(r"rank \d", text), text
    assert "timed out" not in text, text
    # A failed group stays failed, and its errors repeat the first cause.
    reason = text.rpartition(": ")[2]
    again = error_of(lambda: mx.eval(mx.distributed.all_sum(mx.ones(1), group=group)), RuntimeError)
    assert re.search(r"on rank \d cannot start", again), again
    assert reason in again, again
    assert reason in error_of(lambda: group.split(0), RuntimeError)
    healthy(world)


@pytest.mark.parametrize(
    "call",
    [
        differ_in_shape,
        differ_in_type,
        differ_in_reduction,
        differ_in_gathered_shape,
        differ_in_call,
        differ_in_root,
        differ_in_rows,
    ],
)
def test_different_calls_are_an_error_on_every_rank(ranks, call):
    ranks.run(check_difference, call)


def check_conversion_to_numpy() -> None:
    group = mccl.mlx.init(strict=True).split(0)
    differs = differ_in_shape(group)
    # NumPy of MLX 0.32 hides the error. A later MLX may raise it.
    with contextlib.suppress(RuntimeError):
        shown = np.array(differs)
        assert np.isnan(shown).all(), shown
    with contextlib.suppress(RuntimeError):
        mx.eval(mx.ones(1) + 1)


def test_a_result_whose_error_is_hidden_is_not_a_number(ranks):
    ranks.run(check_conversion_to_numpy)


def check_message_size() -> None:
    world = mccl.mlx.init(strict=True)
    group = world.split(0)
    if group.rank() == 0:
        sent = mx.distributed.send(mx.ones(5), 1, group=group)
        try:
            mx.eval(sent)
        except RuntimeError as error:
            assert "rank 1" in str(error), error
    elif group.rank() == 1:
        received = mx.distributed.recv((4,), mx.float32, 0, group=group)
        text = error_of(lambda: mx.eval(received), RuntimeError)
        assert "20" in text or "5" in text, text
    healthy(world)


def test_a_message_of_another_size(two):
    two.run(check_message_size)


# --- wrong arguments ----------------------------------------------------------------------------


def check_arguments() -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    x = mx.ones((size + 1, 2))
    calls = [
        lambda: mx.distributed.sum_scatter(x, group=group),
        lambda: mx.distributed.sum_scatter(mx.array(1.0), group=group),
        lambda: mx.distributed.send(x, size, group=group),
        lambda: mx.distributed.send(x, -1, group=group),
        lambda: mx.distributed.send(x, rank, group=group),
        lambda: mx.distributed.recv((2,), mx.float32, size, group=group),
        lambda: mx.distributed.recv((2,), mx.float32, -1, group=group),
        lambda: mx.distributed.recv((2,), mx.float32, rank, group=group),
    ]
    for number, call in enumerate(calls):
        text = error_of(lambda call=call: mx.eval(call()), (ValueError, RuntimeError))
        assert text, number
        healthy(group)


def test_wrong_arguments_leave_the_group_as_it_was(ranks):
    ranks.run(check_arguments)


# --- time and death -----------------------------------------------------------------------------


def check_timeout() -> None:
    world = mccl.mlx.init(strict=True)
    group = world.split(0)
    if group.rank() == 0:
        text = error_of(lambda: mx.eval(mx.distributed.all_sum(mx.ones(1), group=group)))
        assert re.search(r"timed out after [\d.]+ s.*waiting for rank 1", text), text
    else:
        # This rank never joins the call of rank 0. Its own calls fail once the group has failed.
        time_out = threading.Event()
        while not time_out.wait(0.05):
            try:
                mx.eval(mx.distributed.recv((1,), mx.float32, 0, group=group))
            except RuntimeError as error:
                assert "timed out" in str(error), error
                break


def test_a_call_that_others_do_not_join_times_out():
    with MlxRanks(2, MCCL_TIMEOUT="1") as ranks:
        ranks.run(check_timeout)


def check_meeting_again() -> None:
    assert "call init(backend='mccl') first" in error_of(mccl.mlx.reconfigure, ValueError)
    world = mccl.mlx.init(strict=True)
    for change in (mccl.mlx.shrink, mccl.mlx.reconfigure):
        group = change(timeout=30)
        assert mccl.mlx.init(backend="mccl") is mccl.mlx.default_group() is group
        assert mccl.mlx.all_sum(mx.ones(1)).item() == group.size() == world.size()
    error_of(lambda: mx.eval(mx.distributed.all_sum(mx.ones(1), group=world)), RuntimeError)


def test_groups_are_replaced_when_ranks_meet_again():
    with MlxRanks(2) as ranks:
        ranks.run(check_meeting_again)


def check_bad_timeout(timeout: float) -> None:
    group = mccl.mlx.init(strict=True, backend="mccl")
    for name, change in (("shrink", mccl.mlx.shrink), ("reconfigure", mccl.mlx.reconfigure)):
        text = error_of(lambda change=change: change(timeout=timeout), ValueError)
        assert re.search(rf"{name}: timeout\b.* {timeout}\b", text), text
        healthy(group)
        assert mccl.mlx.init(backend="mccl") is group


@pytest.mark.parametrize("timeout", [0, -1, -math.inf, math.nan])
def test_a_bad_timeout_is_refused_before_the_group_changes(two, timeout: float):
    two.run(check_bad_timeout, timeout)


def check_other_streams_after_an_error() -> None:
    world = mccl.mlx.init(strict=True)
    group = world.split(0)
    stream = mx.new_stream(mx.cpu)
    bad = mx.distributed.all_sum(mx.ones(2 + world.rank()), group=group, stream=stream)
    # Results that depend on the failed call fail with it, on any stream.
    depends = (bad.sum() + 1) * 2
    text = error_of(lambda: mx.eval(depends), RuntimeError)
    assert re.search(r"rank \d", text), text
    # The stream of the failed call raises the error as well, once.
    error_of(lambda: mx.synchronize(stream), RuntimeError)
    good = mx.distributed.all_sum(mx.ones(3), group=world, stream=stream)
    assert good.tolist() == [world.size()] * 3
    healthy(world)


def test_an_error_reaches_dependent_arrays(two):
    two.run(check_other_streams_after_an_error)


def survive(dying: int) -> str:
    """Evaluates until a call fails and returns the error. Rank `dying` is killed on the way."""
    group = mccl.mlx.init(strict=True)
    for step in range(100000):
        if group.rank() == dying and step == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            mx.eval(mx.distributed.all_sum(mx.ones(1000), group=group))
        except RuntimeError as error:
            return str(error)
    return "nothing failed"


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_killed_rank_is_named_on_every_other(size: int):
    with MlxRanks(size) as ranks:
        dying = size - 1
        answers = ranks.answers_of(survive, [(dying,)] * size)
        assert answers[dying] == (False, "the process died")
        for good, text in answers[:dying]:
            assert good, text
            assert f"rank {dying}" in text, text


def shrink_after(dying: int) -> tuple[int, int, int, list[int]]:
    """Kills rank `dying` and continues without it.

    Returns the rank and size in the smaller group, a sum, and the earlier ranks of its members.
    """
    world = mccl.mlx.init(strict=True)
    rank = world.rank()
    healthy(world)
    if rank == dying:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match=f"rank {dying} is gone"):
        while True:
            mx.eval(mx.distributed.all_sum(mx.ones(1000), group=world))
    group = mccl.mlx.shrink(timeout=60)
    assert mccl.mlx.init(backend="mccl") is mccl.mlx.default_group() is group
    total = mx.distributed.all_sum(mx.full((100_000,), rank + 1), group=group)
    assert (total == total[0]).all()
    old = mccl.mlx.all_gather(mx.array([rank]))
    half = group.split(group.rank())
    healthy(half)
    healthy(group)
    return group.rank(), group.size(), total[0].item(), old.tolist()


@pytest.mark.parametrize("dying", [0, 1])
def test_the_remaining_ranks_continue_in_a_smaller_group(dying: int):
    with MlxRanks(3) as ranks:
        answers = ranks.answers_of(shrink_after, [(dying,)] * 3)
    assert answers[dying] == (False, "the process died")
    alive = [rank for rank in range(3) if rank != dying]
    for place, rank in enumerate(alive):
        good, found = answers[rank]
        assert good, found
        assert found == (place, 2, sum(alive) + 2, alive)


def time_of_failure(dying: int, receives: bool, when: str) -> float:
    """Returns the time at which a call failed that waited for the dying rank.

    The dying rank writes the time of its death into the file `when`.
    """
    group = mccl.mlx.init(strict=True)
    mx.eval(mx.distributed.all_sum(mx.ones(1000), group=group))
    if group.rank() == dying:
        time.sleep(0.2)
        Path(when).write_text(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    if receives:
        waits = mx.distributed.recv((4,), mx.float32, dying, group=group)
    else:
        waits = mx.distributed.all_sum(mx.ones(1000), group=group)
    assert f"rank {dying}" in error_of(lambda: mx.eval(waits), RuntimeError)
    return time.time()


@pytest.mark.parametrize("transport", ["auto", pytest.param("tcp", marks=pytest.mark.long)])
@pytest.mark.parametrize("receives", [False, True])
def test_a_death_is_reported_at_once(tmp_path: Path, transport: str, receives: bool):
    """The error takes about 0.03 s on this machine when idle."""
    took = []
    for turn in range(5):
        when = tmp_path / str(turn)
        with MlxRanks(3, MCCL_TRANSPORT=transport) as ranks:
            answers = ranks.answers_of(time_of_failure, [(1, receives, str(when))] * 3)
        for rank in (0, 2):
            good, value = answers[rank]
            assert good, value
            took.append(value - float(when.read_text()))
    assert statistics.median(took) < 0.15, took


def stop_while_pending(dying: int) -> str:
    """Waits for a message from a rank that is killed meanwhile."""
    group = mccl.mlx.init(strict=True)
    if group.rank() == dying:
        os.kill(os.getpid(), signal.SIGKILL)
    received = mx.distributed.recv((4,), mx.float32, dying, group=group)
    return error_of(lambda: mx.eval(received), RuntimeError)


def test_a_receive_from_a_killed_rank_fails():
    with MlxRanks(2) as ranks:
        answers = ranks.answers_of(stop_while_pending, [(1,)] * 2)
        good, text = answers[0]
        assert good, text
        assert "rank 1" in text


def leave_with_work_pending() -> None:
    """Ends a process while operations are pending that no other rank will ever join."""
    group = mccl.mlx.init(strict=True)
    if group.rank() == 0:
        mx.async_eval(mx.distributed.all_sum(mx.ones(4), group=group))
        mx.async_eval(mx.distributed.recv((4,), mx.float32, 1, group=group))


def test_a_process_with_work_pending_can_end():
    ranks = MlxRanks(2, spawned=True)
    ranks.run(leave_with_work_pending)
    processes = [process for process, _ in ranks._workers]
    for _, connection in ranks._workers:
        connection.close()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
