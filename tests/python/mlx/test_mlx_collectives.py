"""`mx.distributed` on groups of MCCL: every operation, type and shape, and every pair of ranks."""

from __future__ import annotations

import math
import threading

import mlx.core as mx
import numpy as np
from mlx_ranks import error_of

import mccl.mlx

DTYPES = [
    "bool_", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64",
]  # fmt: skip
SHAPES = [(), (0,), (7,), (10,), (1024,), (3, 0), (2, 5)]
LARGE = (1024, 1024)


def values(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Returns small integers that differ from rank to rank, whose sums every type can hold."""
    count = math.prod(shape)
    numbers = ((np.arange(count) * 7 + rank * 3) % 5).reshape(shape)
    if dtype == "complex64":
        return numbers + 1j * ((np.arange(count) + rank) % 3).reshape(shape)
    return numbers % 2 == 1 if dtype == "bool_" else numbers


def array(numbers: np.ndarray, dtype: str) -> mx.array:
    return mx.array(numbers).astype(getattr(mx, dtype))


def plain(result: mx.array) -> np.ndarray:
    if result.dtype == mx.bfloat16:
        result = result.astype(mx.float32)
    return np.array(result)


def expect(result: mx.array, expected: np.ndarray, dtype: str, what: str) -> None:
    assert result.dtype == getattr(mx, dtype), what
    assert result.shape == expected.shape, what
    found = plain(result)
    assert (found == expected).all(), f"{what}: {found} is not {expected}"


def reduced(op: str, everyone: list[np.ndarray]) -> np.ndarray:
    stacked = np.stack(everyone)
    if stacked.dtype == bool:
        return stacked.all(0) if op == "min" else stacked.any(0)
    if op == "sum":
        return stacked.sum(0)
    # NumPy orders complex numbers as MLX does: by real parts first, then by imaginary parts.
    return stacked.max(0) if op == "max" else stacked.min(0)


def check_types(shapes, dtypes) -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    for dtype in dtypes:
        for shape in shapes:
            everyone = [values(r, shape, dtype) for r in range(size)]
            what = f"{dtype} {shape}"
            x = array(everyone[rank], dtype)
            for op in ("sum", "max", "min"):
                call = getattr(mx.distributed, f"all_{op}")
                expect(call(x, group=group), reduced(op, everyone), dtype, f"all_{op} {what}")
            gathered = mx.distributed.all_gather(x, group=group)
            parts = [np.atleast_1d(each) for each in everyone]
            expect(gathered, np.concatenate(parts), dtype, f"all_gather {what}")
            if shape:
                rows = mx.repeat(x, size, axis=0)
                total = np.repeat(reduced("sum", everyone), size, axis=0)
                mine = np.split(total, size)[rank]
                scattered = mx.distributed.sum_scatter(rows, group=group)
                expect(scattered, mine, dtype, f"sum_scatter {what}")


def test_every_type_and_shape(ranks):
    ranks.run(check_types, SHAPES, DTYPES)


def test_a_million_elements(ranks):
    ranks.run(check_types, [LARGE], ["uint8", "bfloat16", "float32"])


def check_messages(dtypes) -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    for dtype in dtypes:
        for shape in [(), (0,), (7,), (300, 1000)]:
            for step in range(1, size):
                to, source = (rank + step) % size, (rank - step) % size
                x = array(values(rank, shape, dtype), dtype)
                like = array(values(source, shape, dtype), dtype)
                sent = mx.distributed.send(x, to, group=group)
                # All ranks send first, however long the message. The sends complete because each
                # receive is posted as soon as it is evaluated.
                mx.async_eval(sent)
                if step % 2:
                    got = mx.distributed.recv_like(like, source, group=group)
                else:
                    got = mx.distributed.recv(shape, like.dtype, source, group=group)
                mx.eval(sent, got)
                what = f"{dtype} {shape} from {source}"
                expect(got, values(source, shape, dtype), dtype, what)
                expect(sent, values(rank, shape, dtype), dtype, what)


def test_messages_between_any_two_ranks(ranks):
    ranks.run(check_messages, ["float32", "bool_", "complex64"])


def check_message_order() -> None:
    group = mccl.mlx.init(strict=True)
    if group.rank() == 0:
        for number in range(20):
            mx.eval(mx.distributed.send(mx.array(number), 1, group=group))
    elif group.rank() == 1:
        got = [mx.distributed.recv((), mx.int32, 0, group=group) for _ in range(20)]
        for number, each in enumerate(got):
            assert each.item() == number


def test_messages_keep_their_order(two):
    two.run(check_message_order)


def check_split() -> None:
    world = mccl.mlx.init(strict=True)
    rank, size = world.rank(), world.size()
    halves = world.split(rank % 2)
    assert (halves.rank(), halves.size()) == (rank // 2, size // 2)
    total = mx.distributed.all_sum(mx.array(rank), group=halves)
    assert total.item() == sum(range(rank % 2, size, 2))
    backwards = world.split(0, size - rank)
    assert backwards.rank() == size - 1 - rank
    gathered = mx.distributed.all_gather(mx.array(rank), group=backwards)
    assert gathered.tolist() == list(reversed(range(size)))
    # A rank with a negative key keeps its place, even among ranks with other keys.
    assert world.split(0, -5).rank() == rank
    assert world.split(0, rank if rank % 2 else -1).rank() == rank
    alone = world.split(rank)
    assert alone.size() == 1
    assert mx.distributed.all_sum(mx.array(rank), group=alone).item() == rank
    again = backwards.split(backwards.rank() // (size // 2))
    assert again.size() == size // 2


def test_split(ranks):
    ranks.run(check_split)


def check_split_waits_for_what_was_evaluated() -> None:
    world = mccl.mlx.init(strict=True)
    x = mx.ones((1 << 20,))
    results = [mx.distributed.all_sum(x * step, group=world) for step in range(4)]
    mx.async_eval(*results)
    part = world.split(world.rank() % 2)
    assert part.size() == world.size() // 2
    for step, result in enumerate(results):
        assert result[-1].item() == step * world.size()


def test_split_comes_after_what_was_evaluated(four):
    four.run(check_split_waits_for_what_was_evaluated)


def check_split_into_no_group() -> None:
    world = mccl.mlx.init(strict=True)
    if world.rank() == 0:
        assert "no group" in error_of(lambda: world.split(-1), ValueError)
    else:
        assert world.split(0).size() == world.size() - 1
    assert mx.distributed.all_sum(mx.array(1), group=world).item() == world.size()


def test_split_may_leave_a_rank_without_a_group(four):
    four.run(check_split_into_no_group)


def check_laziness() -> None:
    group = mccl.mlx.init(strict=True)
    # One rank records an operation and never evaluates it, so nothing is communicated.
    if group.rank() == 0:
        forgotten = mx.distributed.all_sum(mx.ones(3), group=group)
        del forgotten
    x = mx.arange(6).reshape(2, 3)
    total = mx.distributed.all_sum(x.T, group=group) + 1
    doubled = mx.distributed.all_sum(total * 2, group=group)
    size = group.size()
    expected = (np.arange(6).reshape(2, 3).T * size + 1) * 2 * size
    assert (np.array(doubled) == expected).all()


def test_operations_are_lazy_and_take_any_layout(ranks):
    ranks.run(check_laziness)


def check_memory() -> None:
    group = mccl.mlx.init(strict=True)
    size = group.size()
    x = mx.arange(1 << 16).astype(mx.float32)
    mx.eval(x)
    # `x` is used again, so it must not become the output.
    total = mx.distributed.all_sum(x, group=group)
    mx.eval(total)
    assert (np.array(x) == np.arange(1 << 16)).all()
    # A temporary may become the output, and no array may be freed while it is in use.
    results = []
    for step in range(30):
        results.append(mx.distributed.all_sum(mx.full((1 << 16,), float(step)), group=group))
        mx.async_eval(results[-1])
    for step, result in enumerate(results):
        assert (np.array(result) == step * size).all()
    # Memory owned by Python is released on the stream's thread, which then needs Python's lock.
    for step in range(30):
        mx.async_eval(mx.distributed.all_sum(mx.array(np.full(9000, step)), group=group))
    mx.synchronize()
    mccl.mlx.barrier(group)


def test_arrays_live_as_long_as_the_operation(ranks):
    ranks.run(check_memory)


def check_donation() -> None:
    """A temporary without another owner is summed in place. An array that is used again is not."""
    group = mccl.mlx.init(strict=True)
    buffer = 8 << 20
    x = mx.ones((buffer // 4,))
    mx.eval(x)

    def peak_of(call) -> float:
        """Returns the peak memory of the call in buffers, beyond the memory in use before."""
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        result = call()
        mx.eval(result)
        assert result[3].item() in (group.size(), 2 * group.size())
        return (mx.get_peak_memory() - before) / buffer

    for all_sum in (mx.distributed.all_sum, mccl.mlx.all_sum):
        assert 0.9 < peak_of(lambda call=all_sum: call(x * 2, group=group)) < 1.5
        assert 0.9 < peak_of(lambda call=all_sum: call(x, group=group)) < 1.5
        kept = x * 2
        assert 1.9 < peak_of(lambda call=all_sum, kept=kept: call(kept, group=group)) < 2.5
        assert kept[3].item() == 2


def test_temporaries_are_summed_in_place(two):
    two.run(check_donation)


def check_streams() -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    streams = [mx.new_stream(mx.cpu) for _ in range(4)]
    for turn in range(20):
        results = []
        for step in range(12):
            # On even ranks the first operations take longest to compute, on odd ranks the last.
            work = 40000 if (step < 6) == (rank % 2 == 0) else 4
            with mx.stream(streams[step % 4]):
                x = mx.full((work,), float(step + turn)).sum() / work
            results.append(mx.distributed.all_sum(x, group=group, stream=streams[(step * 7) % 4]))
        mx.async_eval(*results)
        for step, result in enumerate(results):
            assert abs(result.item() - (step + turn) * size) < 1e-3


def test_several_streams_of_one_group(ranks):
    ranks.run(check_streams)


def check_streams_of_several_groups() -> None:
    world = mccl.mlx.init(strict=True)
    size = world.size()
    groups = [world, world.split(0), world.split(0)]
    streams = [mx.new_stream(mx.cpu) for _ in range(3)]
    for turn in range(20):
        value = mx.array(1.0)
        for step in range(9):
            group, stream = groups[(step + turn) % 3], streams[(step * 2 + turn) % 3]
            value = mx.distributed.all_sum(value, group=group, stream=stream) / size
        side = [mx.distributed.all_max(mx.array(s), group=groups[s % 3]) for s in range(6)]
        mx.eval(value, *side)
        assert value.item() == 1.0
        assert [each.item() for each in side] == list(range(6))


def test_several_streams_and_groups(ranks):
    ranks.run(check_streams_of_several_groups)


def check_threads() -> None:
    world = mccl.mlx.init(strict=True)
    groups = [world.split(0) for _ in range(4)]
    errors = []

    def work(number: int) -> None:
        try:
            for step in range(30):
                x = mx.full((100,), float(step * number))
                total = mx.distributed.all_sum(x, group=groups[number])
                assert total[7].item() == step * number * world.size()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_a_thread_per_group(ranks):
    ranks.run(check_threads)


def check_threads_that_share() -> None:
    """Two threads use one group, in an order that the program fixes."""
    world = mccl.mlx.init(strict=True)
    turn, errors = threading.Condition(), []
    now = [0]

    def work(number: int) -> None:
        try:
            for step in range(number, 40, 2):
                with turn:
                    turn.wait_for(lambda step=step: now[0] == step or errors)
                    x = mx.full((5000,), float(step))
                    result = mx.distributed.all_sum(x, group=world)
                    mx.async_eval(result)
                    now[0] += 1
                    turn.notify_all()
                assert result[0].item() == step * world.size()
        except BaseException as error:
            errors.append(error)
            with turn:
                turn.notify_all()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_threads_that_share_a_group(ranks):
    ranks.run(check_threads_that_share)


def check_compiled() -> None:
    group = mccl.mlx.init(strict=True)
    size = group.size()

    @mx.compile
    def step(x):
        total = mx.distributed.all_sum(x * 2, group=group)
        # Two identical calls are two operations.
        return total + mx.distributed.all_sum(x * 2, group=group), mccl.mlx.all_mean(x, group=group)

    for value in (1.0, 2.0, 3.0):
        total, mean = step(mx.full((8,), value))
        assert total.tolist() == [4 * value * size] * 8
        assert mean.tolist() == [value] * 8


def test_in_compiled_functions(ranks):
    ranks.run(check_compiled)


def check_gradients_and_vmap_of_mlx() -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    x = mx.arange(4).astype(mx.float32) + rank
    gradient = mx.grad(lambda x: (mx.distributed.all_sum(x, group=group) ** 2).sum())(x)
    total = sum(np.arange(4) + r for r in range(size))
    assert np.allclose(np.array(gradient), 2 * total)
    mapped = mx.vmap(lambda x: mx.distributed.all_sum(x, group=group))(mx.ones((3, 2)))
    assert mapped.tolist() == [[size] * 2] * 3


def test_mlx_own_gradients_and_vmap(ranks):
    ranks.run(check_gradients_and_vmap_of_mlx)
