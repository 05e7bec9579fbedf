"""Operations that MLX lacks: results, gradients and vmap."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx_ranks import error_of

import mccl.mlx

WIDTH = 3


def rows_of(size: int) -> list[int]:
    """Returns the number of rows of each rank. They differ, and some are 0."""
    return [(3 * rank + 1) % 4 for rank in range(size)]


def numbers(rank: int, rows: int, seed: int = 0) -> np.ndarray:
    """Returns rows that differ from rank to rank, with values small enough to be exact."""
    return np.random.default_rng([rank, seed]).integers(-4, 5, (rows, WIDTH)).astype(np.float32)


class Case:
    """One exchange: the call, the input of each rank, and the expected output of each rank."""

    def __init__(self, call, inputs, outputs):
        self.call, self.inputs, self.outputs = call, inputs, outputs


def cases_of(size: int, seed: int = 0) -> dict[str, Case]:
    """Returns every exchange over `size` ranks, with the results that NumPy computes."""
    ranks = range(size)
    root, rows = size - 1, rows_of(size)
    starts = np.cumsum([0, *rows])
    same = [numbers(rank, 4, seed) for rank in ranks]
    full = [numbers(rank, sum(rows), seed) for rank in ranks]
    own = [numbers(rank, rows[rank], seed) for rank in ranks]
    even = [numbers(rank, 2 * size, seed) for rank in ranks]
    none = np.zeros((0, WIDTH), np.float32)
    total, total_full, total_even = sum(same), sum(full), sum(even)
    # table[i][j] is the number of rows that rank i gives to rank j.
    table = [[(i + 2 * j) % 3 for j in ranks] for i in ranks]
    given = [numbers(rank, sum(table[rank]), seed) for rank in ranks]
    taken = [
        np.concatenate(
            [given[i][sum(table[i][:j]) : sum(table[i][: j + 1])] for i in ranks] + [none]
        )
        for j in ranks
    ]
    mlx = mccl.mlx

    def uneven_all_to_all(x, group):
        rank = group.rank()
        rows_from = [table[i][rank] for i in ranks]
        return mlx.all_to_all(x, table[rank], rows_from, group=group)

    return {
        "all_sum": Case(lambda x, g: mlx.all_sum(x, group=g), same, [total] * size),
        "all_mean": Case(lambda x, g: mlx.all_mean(x, group=g), same, [total / size] * size),
        "broadcast": Case(lambda x, g: mlx.broadcast(x, root, group=g), same, [same[root]] * size),
        "reduce": Case(
            lambda x, g: mlx.reduce(x, root, group=g),
            same,
            [total if rank == root else 0 * total for rank in ranks],
        ),
        "all_gather": Case(
            lambda x, g: mlx.all_gather(x, group=g), same, [np.concatenate(same)] * size
        ),
        "uneven all_gather": Case(
            lambda x, g: mlx.all_gather(x, rows, group=g), own, [np.concatenate(own)] * size
        ),
        "sum_scatter": Case(
            lambda x, g: mlx.sum_scatter(x, group=g), even, np.split(total_even, size)
        ),
        "uneven sum_scatter": Case(
            lambda x, g: mlx.sum_scatter(x, rows, group=g),
            full,
            [total_full[starts[r] : starts[r + 1]] for r in ranks],
        ),
        "gather": Case(
            lambda x, g: mlx.gather(x, root, group=g),
            same,
            [np.concatenate(same) if rank == root else none for rank in ranks],
        ),
        "uneven gather": Case(
            lambda x, g: mlx.gather(x, root, rows, group=g),
            own,
            [np.concatenate(own) if rank == root else none for rank in ranks],
        ),
        "scatter": Case(
            lambda x, g: mlx.scatter(x, root, group=g), even, np.split(even[root], size)
        ),
        "uneven scatter": Case(
            lambda x, g: mlx.scatter(x, root, rows, group=g),
            [full[root] if rank == root else none for rank in ranks],
            [full[root][starts[r] : starts[r + 1]] for r in ranks],
        ),
        "all_to_all": Case(
            lambda x, g: mlx.all_to_all(x, group=g),
            even,
            [np.concatenate([np.split(even[i], size)[j] for i in ranks]) for j in ranks],
        ),
        "uneven all_to_all": Case(uneven_all_to_all, given, taken),
    }


NAMES = list(cases_of(2))


def check_result(name: str) -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    case = cases_of(size)[name]
    for dtype in (mx.float32, mx.int32, mx.float16):
        if dtype == mx.int32 and name == "all_mean":
            continue
        x = mx.array(case.inputs[rank]).astype(dtype)
        result = case.call(x, group)
        assert result.dtype == dtype
        assert result.shape == case.outputs[rank].shape
        assert np.allclose(np.array(result), case.outputs[rank]), (name, rank)
        assert (np.array(x) == case.inputs[rank]).all()
    # The input is not contiguous, and the call is part of a larger graph.
    transposed = mx.array(case.inputs[rank].T.copy()).T
    assert np.allclose(np.array(case.call(transposed * 2, group) + 1), case.outputs[rank] * 2 + 1)


@pytest.mark.parametrize("name", NAMES)
def test_results(ranks, name):
    ranks.run(check_result, name)


def total_of(value: mx.array, group) -> float:
    return mx.distributed.all_sum(value, group=group).item()


def check_gradient(name: str) -> None:
    """Checks the definition of an adjoint.

    The inner product of a cotangent with a tangent's image equals that of the pulled back cotangent
    with the tangent, both summed over all ranks.
    """
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    case, other = cases_of(size)[name], cases_of(size, seed=1)[name]
    x, tangent = mx.array(case.inputs[rank]), mx.array(other.inputs[rank])
    cotangent = mx.array(numbers(rank, case.outputs[rank].shape[0], seed=2))

    def call(x):
        return case.call(x, group)

    [value], [image] = mx.jvp(call, [x], [tangent])
    assert np.allclose(np.array(value), case.outputs[rank])
    assert np.allclose(np.array(image), other.outputs[rank])
    _, [pulled] = mx.vjp(call, [x], [cotangent])
    assert pulled.shape == x.shape
    before = total_of((cotangent * image).sum(), group)
    after = total_of((pulled * tangent).sum(), group)
    assert abs(before - after) < 1e-3, (before, after)
    # The adjoint of the adjoint is the exchange itself.
    _, [again] = mx.vjp(lambda c: mx.vjp(call, [x], [c])[1][0], [cotangent], [tangent])
    if name != "uneven scatter":  # in which ranks other than the root have no rows
        assert np.allclose(np.array(again), other.outputs[rank])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_adjoint(ranks, name):
    ranks.run(check_gradient, name)


def check_rule_of_gradients() -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    x = mx.array(numbers(rank, 2))
    weights = [numbers(r, 2 * size, seed=3) for r in range(size)]

    def loss(x):
        return (mccl.mlx.all_gather(x, group=group) * mx.array(weights[rank])).sum()

    # Each rank's loss has its own weights for all rows. A row's gradient is the sum of its weights.
    gradient = np.array(mx.grad(loss)(x))
    assert np.allclose(gradient, sum(weights)[2 * rank : 2 * rank + 2])


def test_the_gradient_of_all_gather_is_a_reduce_scatter(ranks):
    ranks.run(check_rule_of_gradients)


def check_vmap(name: str) -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    batches = [cases_of(size, seed=seed)[name] for seed in range(3)]
    call = batches[0].call
    for axis in (0, 1, 2):
        x = mx.array(np.stack([case.inputs[rank] for case in batches], axis=axis))
        for out_axis in (0, 1):
            mapped = mx.vmap(lambda x: call(x, group), in_axes=axis, out_axes=out_axis)(x)
            expected = np.stack([case.outputs[rank] for case in batches], axis=out_axis)
            assert np.allclose(np.array(mapped), expected), (name, axis, out_axis)


@pytest.mark.parametrize("name", NAMES)
def test_vmap(four, name):
    four.run(check_vmap, name)


def check_scalars() -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    x = mx.array(rank)
    assert mccl.mlx.all_gather(x, group=group).tolist() == list(range(size))
    assert mccl.mlx.all_sum(x, group=group).item() == sum(range(size))
    assert mccl.mlx.broadcast(x, 1, group=group).item() == 1
    gathered = mccl.mlx.gather(x, 1, group=group)
    assert gathered.tolist() == (list(range(size)) if rank == 1 else [])


def test_scalars(ranks):
    ranks.run(check_scalars)


def check_every_type() -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    for dtype in (
        mx.bool_, mx.int8, mx.uint8, mx.int16, mx.uint16, mx.int32, mx.uint32, mx.int64, mx.uint64,
        mx.float16, mx.bfloat16, mx.float32, mx.float64, mx.complex64,
    ):  # fmt: skip
        x = mx.full((size, 2), rank % 2).astype(dtype)
        with mx.stream(mx.cpu):
            moved = mccl.mlx.all_to_all(x, group=group)
            parity = (mx.arange(size) % 2).astype(dtype)
            assert mx.array_equal(moved[:, 0], parity).item(), dtype
            assert mx.array_equal(mccl.mlx.broadcast(x, 1, group=group), mx.ones_like(x)).item()


def test_every_type(ranks):
    ranks.run(check_every_type)


def check_barrier() -> None:
    group = mccl.mlx.init(strict=True)
    assert mccl.mlx.barrier(group) is None
    mccl.mlx.barrier()
    pending = mx.distributed.all_sum(mx.ones(1 << 20), group=group)
    mx.async_eval(pending)
    mccl.mlx.barrier(group)
    assert pending[5].item() == group.size()


def test_barrier(ranks):
    ranks.run(check_barrier)


def check_compiled() -> None:
    group = mccl.mlx.init(strict=True)
    rank, size = group.rank(), group.size()
    case = cases_of(size)["uneven all_gather"]
    compiled = mx.compile(lambda x: case.call(x * 2, group) + 1)
    for _ in range(3):
        assert np.allclose(
            np.array(compiled(mx.array(case.inputs[rank]))), case.outputs[rank] * 2 + 1
        )


def test_in_compiled_functions(two):
    two.run(check_compiled)


def check_wrong_arguments() -> None:
    group = mccl.mlx.init(strict=True)
    size = group.size()
    mlx, x = mccl.mlx, mx.ones((size + 1, 2))
    calls = [
        (lambda: mlx.sum_scatter(x, group=group), f"is not a multiple of {size} ranks"),
        (lambda: mlx.scatter(x, group=group), f"is not a multiple of {size} ranks"),
        (lambda: mlx.all_to_all(x, group=group), f"is not a multiple of {size} ranks"),
        (lambda: mlx.sum_scatter(mx.array(1), group=group), f"is not a multiple of {size} ranks"),
        (lambda: mlx.broadcast(x, size, group=group), f"root {size} is not a rank"),
        (lambda: mlx.gather(x, -1, group=group), "root -1 is not a rank"),
        (lambda: mlx.all_gather(x, [1] * (size + 1), group=group), "one number for each of"),
        (lambda: mlx.all_gather(x, [1] * size, group=group), f"{size + 1} rows"),
        (lambda: mlx.all_gather(x, [-1] * size, group=group), "at least 0"),
        (lambda: mlx.sum_scatter(x, [1] * size, group=group), f"{size + 1} rows"),
        (lambda: mlx.all_to_all(x, [1] * size, group=group), "both rows_to and rows_from"),
        (lambda: mlx.all_to_all(x, [1] * size, [1] * size, group=group), f"{size + 1} rows"),
    ]
    for call, expected in calls:
        found = error_of(call, ValueError)
        assert expected in found, (expected, found)
    mlx_own = mx.distributed.init()
    assert "MLX's own" in error_of(lambda: mlx.all_sum(x, group=mlx_own), ValueError)
    assert total_of(mx.array(1), group) == size


def test_wrong_arguments_leave_the_group_as_it_was(two):
    two.run(check_wrong_arguments)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("all_sum", {"group": 3}, "all_sum: group: expected a group from .*found int 3"),
        ("all_gather", {"group": 3}, "all_gather: group: expected a group from .*found int 3"),
        ("all_mean", {"x": [1.0]}, r"all_mean: x: expected an mlx\.core\.array; found list"),
        ("gather", {"x": [1.0]}, r"gather: x: expected an mlx\.core\.array; found list"),
        ("broadcast", {"root": "a"}, "broadcast: root: expected a rank; found str 'a'"),
    ],
)
def test_arguments_of_other_types_are_named(name: str, given: dict, expected: str):
    with pytest.raises(TypeError, match=expected):
        getattr(mccl.mlx, name)(**({"x": mx.ones(3)} | given))


def test_a_barrier_of_no_group_says_so():
    with pytest.raises(TypeError, match="barrier: group: expected a group from"):
        mccl.mlx.barrier(3)
    with pytest.raises(TypeError, match="average_gradients: group: expected a group from"):
        mccl.mlx.average_gradients({"w": mx.ones(3)}, group=3)
