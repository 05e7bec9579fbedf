"""The calls, compared with NumPy: every dtype and reduction, random shapes, 2, 4 and 8 ranks."""

from __future__ import annotations

import functools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
REDUCTIONS = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
BITWISE = ("band", "bor", "bxor")
ORDERED = ("min", "max")


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def defined(name: str, op: str) -> bool:
    """Returns whether a reduction is defined for a dtype."""
    kind = dtype_of(name).kind
    if kind == "b":
        return True
    if kind in "iu":
        return True
    return op not in BITWISE and not (kind == "c" and op in ORDERED)


def values(rank: int, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Returns small integers that differ from rank to rank.

    Products over 8 ranks are exact in every float type.
    """
    count = math.prod(shape)
    numbers = (np.arange(count) * 7 + rank * 3 + 1) % 3
    return numbers.reshape(shape).astype(dtype_of(name))


def reduced(op: str, arrays: list[np.ndarray]) -> np.ndarray:
    with np.errstate(over="ignore"):
        return functools.reduce(REDUCTIONS[op], arrays).astype(arrays[0].dtype)


def check(found, expected, where: str = "") -> None:
    assert isinstance(found, np.ndarray), (where, type(found))
    assert found.dtype == expected.dtype, (where, found.dtype, expected.dtype)
    assert found.shape == expected.shape, (where, found.shape, expected.shape)
    assert found.tobytes() == expected.tobytes(), (where, found, expected)


def check_reductions(world, names) -> None:
    for name in names:
        arrays = [values(rank, (5, 3), name) for rank in range(world.size)]
        for op in REDUCTIONS:
            where = f"{op} of {name}"
            if not defined(name, op):
                with pytest.raises(ValueError, match=f"all_reduce: {op} is not defined"):
                    world.all_reduce(arrays[world.rank], op)
                continue
            expected = reduced(op, arrays)
            check(world.all_reduce(arrays[world.rank], op), expected, where)
            found = world.reduce(arrays[world.rank], op, root=world.size - 1)
            if world.rank == world.size - 1:
                check(found, expected, where)
            else:
                assert found is None


def test_every_dtype_and_reduction(pool):
    pool.run(check_reductions, TYPES)


def check_averages(world) -> None:
    x = np.array([-7, 7, 3]) + world.rank - (world.size - 1) // 2
    total = sum(np.array([-7, 7, 3]) + r - (world.size - 1) // 2 for r in range(world.size))
    check(world.all_reduce(x, "avg"), np.trunc(total / world.size).astype(x.dtype))
    check(world.all_reduce(x.astype("f4"), "avg"), (total / world.size).astype("f4"))
    x = np.full(4, world.rank + 1, "f8")
    expected = sum((r + 1) * 0.5 * (r + 1) for r in range(world.size))
    check(world.all_reduce(x, ("premul_sum", 0.5 * (world.rank + 1))), np.full(4, expected))


def test_averages_and_factors(pool):
    pool.run(check_averages)


def check_case(world, shape, name, in_place, out_of_order, wait) -> None:
    """Runs every collective on one shape, whose first axis divides evenly among the ranks."""
    size, rank = world.size, world.rank
    whole = [values(r, (shape[0] * size, *shape[1:]), name) for r in range(size)]
    parts = [values(r, shape, name) for r in range(size)]
    op = "bor" if name == "bool" else "sum"
    total = reduced(op, whole)

    def lie(array):
        return np.asfortranarray(array) if out_of_order else array.copy()

    def answer(found):
        return found if wait else found.wait()

    def rows(array, r):
        return array[r * shape[0] : (r + 1) * shape[0]]

    x = whole[rank].copy() if in_place else lie(whole[rank])
    found = answer(world.all_reduce(x, op, x if in_place else None, wait=wait))
    assert (found is x) == in_place
    check(found, total)

    x = whole[rank].copy() if in_place else lie(whole[rank])
    check(answer(world.broadcast(x, 1, x if in_place else None, wait=wait)), whole[1])

    out = np.empty_like(whole[0]) if in_place else None
    x = lie(parts[rank])
    if in_place:
        rows(out, rank)[:] = parts[rank]
        x = rows(out, rank)
    check(answer(world.all_gather(x, out, wait=wait)), np.concatenate(parts))
    found = answer(world.gather(lie(parts[rank]), 1, wait=wait))
    if rank == 1:
        check(found, np.concatenate(parts))
    else:
        assert found is None

    x = whole[rank].copy() if in_place else lie(whole[rank])
    out = rows(x, rank) if in_place else None
    check(answer(world.reduce_scatter(x, op, out, wait=wait)), rows(total, rank))
    x = whole[rank].copy() if in_place else lie(whole[rank])
    out = rows(x, rank) if in_place and rank == 1 else None
    check(answer(world.scatter(x, 1, out, wait=wait)), rows(whole[1], rank))

    found = answer(world.all_to_all(lie(whole[rank]), wait=wait))
    check(found, np.concatenate([rows(array, rank) for array in whole]))


SHAPES = st.lists(st.integers(0, 5), max_size=2).flatmap(
    lambda rest: st.integers(0, 40).map(lambda rows: (rows, *rest))
)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(SHAPES, st.sampled_from(TYPES), st.booleans(), st.booleans(), st.booleans())
def test_any_shape_and_dtype(pool, shape, name, in_place, out_of_order, wait):
    pool.run(check_case, shape, name, in_place, out_of_order, wait)


def test_large_arrays(pair):
    pair.run(check_case, (300_000, 3), "float32", False, True, True)
    pair.run(check_case, (300_000, 3), "float32", True, False, False)


def check_uneven(world, counts, name) -> None:
    size, rank = world.size, world.rank
    ends = np.cumsum(counts)
    starts = ends - counts
    parts = [values(r, (counts[r], 3), name) for r in range(size)]
    together = np.concatenate(parts)
    check(world.all_gather(parts[rank], counts=counts), together)
    found = world.gather(parts[rank], size - 1, counts=counts)
    assert (found is None) == (rank != size - 1)
    if found is not None:
        check(found, together)

    whole = [values(r, (sum(counts), 3), name) for r in range(size)]
    mine = slice(starts[rank], ends[rank])
    op = "bor" if name == "bool" else "sum"
    check(world.reduce_scatter(whole[rank], op, counts=counts), reduced(op, whole)[mine])
    check(world.scatter(whole[rank], 0, counts=counts), whole[0][mine])
    out = np.empty((counts[rank], 3), dtype_of(name))
    x = whole[0] if rank == 0 else None
    assert world.scatter(x, 0, out, counts=counts) is out
    check(out, whole[0][mine])

    # Rank i sends counts[(i + j) % size] rows to rank j.
    given_by = [[counts[(i + j) % size] for j in range(size)] for i in range(size)]
    arrays = [values(r, (sum(given_by[r]), 3), name) for r in range(size)]
    expected = []
    for r in range(size):
        begin = sum(given_by[r][:rank])
        expected.append(arrays[r][begin : begin + given_by[r][rank]])
    found = world.all_to_all(
        arrays[rank], in_counts=given_by[rank], out_counts=[given_by[r][rank] for r in range(size)]
    )
    check(found, np.concatenate(expected))


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_uneven_parts(pool, data):
    counts = data.draw(st.lists(st.integers(0, 9), min_size=pool.size, max_size=pool.size))
    pool.run(check_uneven, counts, data.draw(st.sampled_from(TYPES)))


def check_split(world) -> None:
    half = world.split(world.rank % 2, key=-world.rank)
    assert half.size == world.size // 2
    members = [r for r in reversed(range(world.size)) if r % 2 == world.rank % 2]
    assert members[half.rank] == world.rank
    check(half.all_gather(world.rank), np.array(members))
    assert half.name != world.name
    outside = world.split(-1 if world.rank == 0 else 0)
    assert (outside is None) == (world.rank == 0)
    if outside is not None:
        assert outside.all_reduce(1) == world.size - 1
    assert world.all_reduce(1) == world.size


def test_split(pool):
    pool.run(check_split)


def check_messages(world) -> None:
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    # Both messages are in flight at once. One is larger than what is sent ahead of its receive, and
    # the tags are received in another order than sent.
    large = np.full(200_000, world.rank, "f8")
    works = [world.send(large, after, 2, wait=False), world.send([1, 2, 3], after, 9, wait=False)]
    out = np.empty(3, "i8")
    assert world.recv(out, before, 9) is out
    check(out, np.array([1, 2, 3]))
    check(world.recv(np.empty_like(large), before, 2), np.full_like(large, before))
    assert [work.wait() for work in works] == [None, None]
    if world.rank == 0:
        senders = set()
        for _ in range(world.size - 1):
            work = world.recv(out[:1], wait=False)
            work.wait()
            assert out[0] == work.source
            senders.add(work.source)
        assert senders == set(range(1, world.size))
    else:
        world.send(world.rank, 0)
    world.barrier()


def test_messages(pool):
    pool.run(check_messages)
