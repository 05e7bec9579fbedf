"""Failures: every rank gets the right exception and its cause, in bounded time."""

from __future__ import annotations

import builtins
import math
import os
import pickle
import signal

import numpy as np
import pytest
from world_pool import WorldPool

import mccl.distributed as dist


def failure_of(call) -> tuple[str, str]:
    """Returns the class and message of the error that `call` must raise."""
    try:
        call()
    except dist.Error as error:
        return type(error).__name__, str(error)
    raise AssertionError("nothing was raised")


def test_classes_are_the_builtin_ones_too():
    assert issubclass(dist.TimeoutError, builtins.TimeoutError)
    assert issubclass(dist.PeerError, ConnectionError)
    assert issubclass(dist.InvalidArgument, ValueError)
    assert issubclass(dist.MismatchError, ValueError)
    for kind in (dist.AbortedError, dist.CorruptionError, dist.TimeoutError, dist.PeerError):
        assert issubclass(kind, dist.Error)
        error = pickle.loads(pickle.dumps(kind("rank 1 said so")))
        assert type(error) is kind
        assert str(error) == "rank 1 said so"


def check_mismatch(world, calls) -> tuple[str, str]:
    found = failure_of(lambda: calls[min(world.rank, 1)](world))
    # The group has failed, so later calls fail at once.
    assert failure_of(lambda: world.all_reduce(1))[0] != "InvalidArgument"
    assert world.failure
    return found


def reduce_three(world):
    return world.all_reduce(np.ones(3, "f4"))


def reduce_four(world):
    return world.all_reduce(np.ones(4, "f4"))


def reduce_integers(world):
    return world.all_reduce(np.ones(3, "i4"))


def reduce_max(world):
    return world.all_reduce(np.ones(3, "f4"), "max")


def meet(world):
    return world.barrier()


def gather_even(world):
    return world.all_gather(np.ones(2))


def gather_uneven(world):
    return world.all_gather(np.ones(2), counts=[3, 2])


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (reduce_three, reduce_four),
        (reduce_three, reduce_integers),
        (reduce_three, reduce_max),
        (reduce_three, meet),
    ],
    ids=["shape", "dtype", "op", "call"],
)
def test_different_calls_are_an_error(pool, first, other):
    found = pool.run_and_leave(check_mismatch, (first, other))
    assert {kind for kind, _ in found} == {"MismatchError"}
    for _, text in found:
        assert "all_reduce" in text
        assert "rank" in text


def test_counts_that_differ(pair):
    found = pair.run_and_leave(check_mismatch, (gather_even, gather_uneven))
    assert "MismatchError" in {kind for kind, _ in found}


@pytest.fixture(scope="module")
def three():
    ranks = WorldPool(3)
    yield ranks
    ranks.close()


def sum_many(world):
    return world.all_reduce(np.ones(1_000_001, "f4"))


def broadcast_from_0(world):
    return world.broadcast(np.ones(3), 0)


def broadcast_from_2(world):
    return world.broadcast(np.ones(3), 2)


def reduce_to_0(world):
    return world.reduce(np.ones(3), root=0)


def reduce_to_2(world):
    return world.reduce(np.ones(3), root=2)


def scatter_sums(world):
    return world.reduce_scatter(np.ones(6))


#: The description of each call in an error. All calls are the first of their group.
DESCRIPTIONS = {
    reduce_three: "all_reduce #1 (sum of 3 f32)",
    reduce_four: "all_reduce #1 (sum of 4 f32)",
    sum_many: "all_reduce #1 (sum of 1000001 f32)",
    reduce_integers: "all_reduce #1 (sum of 3 i32)",
    reduce_max: "all_reduce #1 (max of 3 f32)",
    meet: "barrier #1",
    broadcast_from_0: "broadcast #1 (3 f64, root 0)",
    broadcast_from_2: "broadcast #1 (3 f64, root 2)",
    reduce_to_0: "reduce #1 (sum of 3 f64, root 0)",
    reduce_to_2: "reduce #1 (sum of 3 f64, root 2)",
    gather_even: "all_gather #1 (6 f64)",
    scatter_sums: "reduce_scatter #1 (sum of 6 f64)",
}


def check_difference(world, odd: int, calls) -> tuple[str, str]:
    def make_calls() -> None:
        calls[world.rank == odd](world)
        # A rank that only sends in its call may complete it before it sees the difference.
        world.barrier()

    found = failure_of(make_calls)
    assert failure_of(world.barrier)[0] == "MismatchError"
    return found


@pytest.mark.parametrize("odd", [0, 1, 2])
@pytest.mark.parametrize(
    "calls",
    [
        (reduce_three, reduce_four),
        (reduce_three, sum_many),
        (reduce_three, reduce_integers),
        (reduce_three, reduce_max),
        (reduce_three, meet),
        (meet, reduce_three),
        (sum_many, meet),
        (broadcast_from_0, broadcast_from_2),
        (reduce_to_0, reduce_to_2),
        (gather_even, scatter_sums),
    ],
    ids=lambda calls: " ".join(call.__name__ for call in calls),
)
def test_both_calls_are_named_on_every_rank(three, calls, odd: int):
    for kind, text in three.run_and_leave(check_difference, odd, calls):
        assert kind == "MismatchError", text
        for call in calls:
            assert DESCRIPTIONS[call] in text, text
        assert f"rank {odd}" in text, text


def check_timeout(world) -> tuple[str, str]:
    if world.rank == 0:
        return failure_of(lambda: world.all_reduce(np.ones(3), timeout=0.2))
    return failure_of(lambda: world.recv(np.empty(1), 0, 9))


def test_a_call_that_others_do_not_join_times_out(pool):
    found = pool.run_and_leave(check_timeout)
    assert found[0][0] == "TimeoutError"
    assert "all_reduce" in found[0][1]
    for kind, text in found[1:]:
        assert kind in ("TimeoutError", "AbortedError", "PeerError")
        assert "rank 0" in text


def check_abort(world) -> tuple[str, str]:
    if world.rank == 0:
        work = world.all_reduce(np.ones(3), wait=False)
        world.abort("the data ran out")
        kind, text = failure_of(work.wait)
        assert isinstance(work.error(), dist.AbortedError)
        assert "failed" in repr(work)
        return kind, text
    return failure_of(lambda: world.recv(np.empty(1), 0, 9))


def test_abort_reaches_everybody(pool):
    for kind, text in pool.run_and_leave(check_abort):
        assert kind == "AbortedError"
        assert "the data ran out" in text


def check_death(world) -> str:
    kind, text = failure_of(lambda: world.recv(np.empty(1), world.size - 1))
    assert kind == "PeerError"
    assert failure_of(lambda: world.all_reduce(1))[0] == "PeerError"
    return text


def die(world) -> None:
    world.barrier(wait=False).wait()
    os.kill(os.getpid(), signal.SIGKILL)


def check_death_after_barrier(world) -> str:
    world.barrier()
    return check_death(world)


def test_a_killed_rank_is_named(pool):
    last = pool.size - 1
    tasks = [(check_death_after_barrier, ())] * last + [(die, ())]
    for text in pool.run_each(tasks, lost=[last])[:last]:
        assert f"rank {last}" in text


def check_sub_group(world) -> None:
    half = world.split(world.rank % 2)
    if world.rank % 2 == 0:
        half.abort("only this one")
        assert failure_of(lambda: half.all_reduce(1))[0] == "AbortedError"
    else:
        assert half.all_reduce(1) == half.size
    assert world.all_reduce(1) == world.size
    assert (half.failure is None) == (world.rank % 2 == 1)


def test_a_failed_group_breaks_no_other(four):
    four.run(check_sub_group)


def check_second_init(world) -> None:
    assert dist.init() is world
    assert dist.init(rank=world.rank, size=world.size, timeout=30) is world
    says = (
        r"init: timeout is 31, but the world was made with 30; "
        r"call shutdown\(\) before making another"
    )
    with pytest.raises(dist.InvalidArgument, match=says):
        dist.init(timeout=31)
    with pytest.raises(dist.InvalidArgument, match=r"init: rank is \d+, but"):
        dist.init(rank=world.rank + 1)
    assert world.all_reduce(1) == world.size


def test_a_second_init_gives_the_same_world(pair):
    pair.run(check_second_init)


def check_left(world) -> tuple[str, str]:
    """Rank 0 leaves while the others wait for it."""
    if world.rank == 0:
        dist.shutdown()
        assert not dist.is_initialized()
        assert failure_of(lambda: world.all_reduce(1))[0] == "AbortedError"
        return "PeerError", "left: rank 0"
    return failure_of(lambda: world.recv(np.empty(1), 0))


def test_a_rank_that_leaves_is_named(four):
    for _, text in four.run_and_leave(check_left):
        assert "rank 0" in text
    four.run(meet)  # all ranks start again


def check_bad_timeout(world, timeout: float) -> None:
    for name, change in (("shrink", world.shrink), ("reconfigure", dist.reconfigure)):
        with pytest.raises(dist.InvalidArgument, match=rf"{name}: timeout\b.* {timeout}\b"):
            change(timeout=timeout)
        assert dist.init() is world
        assert world.failure is None
        assert world.all_reduce(1) == world.size


@pytest.mark.parametrize("timeout", [0, -1, -0.5, -math.inf, math.nan])
def test_a_bad_timeout_is_refused_before_the_group_changes(pair, timeout: float):
    pair.run(check_bad_timeout, timeout)


def check_odd_timeout(world, timeout: object) -> None:
    with pytest.raises((dist.InvalidArgument, TypeError), match=r"^reconfigure: timeout"):
        dist.reconfigure(timeout=timeout)
    assert dist.init() is world


@pytest.mark.parametrize("timeout", [math.inf, 1e30, 1e-9, True, "soon"])
def test_an_odd_timeout_of_reconfigure_is_refused_by_its_name(pair, timeout: object):
    pair.run(check_odd_timeout, timeout)
