"""MLX's checks of its own backends (ring, MPI and NCCL), run on the default group.

Where the backends differ, the strongest guarantee is checked: groups can be split, and messages may
go to any rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.nn.layers.distributed import fully_shard, shard_inplace, shard_linear
from mlx.nn.utils import average_gradients, clip_grad_norm_sharded

import mccl.mlx

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
#: Relative error allowed for a sum of eight values.
FLOATS = {"float32": 1e-6, "float16": 5e-3, "bfloat16": 1e-1, "complex64": 1e-6, "float64": 1e-12}
SHAPES = [(7,), (10,), (1024,)]
LARGE = (1024, 1024)
#: Types that are also tested with arrays of shape LARGE.
OF_LARGE = ["int8", "int32", "float32", "float16", "bfloat16"]


def cases() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the tested combinations of type and shape."""
    for dtype in [*INTEGERS, *FLOATS]:
        yield from ((dtype, shape) for shape in SHAPES)
        if dtype in OF_LARGE:
            yield dtype, LARGE


def world() -> mx.distributed.Group:
    mccl.mlx.install()
    return mx.distributed.init(strict=True)


def of_everyone(size: int, shape: tuple[int, ...], dtype: str) -> mx.array:
    """Returns an array that is the same on all ranks. Its first axis is the rank.

    The values range from 0 to 10.
    """
    numbers = mx.random.uniform(shape=(size, *shape), key=mx.random.key(0)) * 10
    return numbers.astype(getattr(mx, dtype))


def error(found: mx.array, expected: mx.array, relative: bool) -> float:
    wide = mx.complex64 if expected.dtype == mx.complex64 else mx.float32
    difference = mx.abs(found.astype(wide) - expected.astype(wide))
    if relative:
        difference = difference / mx.maximum(mx.abs(expected.astype(wide)), 1e-6)
    return difference.max().item()


def check_reductions(group: mx.distributed.Group | None, rank: int, size: int) -> None:
    for dtype, shape in cases():
        x = of_everyone(size, shape, dtype)
        what = f"{dtype} {shape}"
        summed = mx.distributed.all_sum(x[rank], group=group)
        expected = x[0]
        for other in range(1, size):
            expected = expected + x[other]  # in this type, because its sums wrap and round
        assert summed.dtype == expected.dtype, what
        tolerance = FLOATS.get(dtype, 0)
        assert error(summed, expected, tolerance > 0) <= tolerance, what
        if dtype == "complex64":
            continue
        largest = mx.distributed.all_max(x[rank], group=group)
        smallest = mx.distributed.all_min(x[rank], group=group)
        assert mx.array_equal(largest, x.max(0)).item(), what
        assert mx.array_equal(smallest, x.min(0)).item(), what


def reduce_in_the_world() -> None:
    group = world()
    check_reductions(None, group.rank(), group.size())


def reduce_in_halves() -> None:
    group = world()
    half = group.split(group.rank() % 2)
    check_reductions(half, half.rank(), half.size())


@pytest.mark.parametrize("check", [reduce_in_the_world, reduce_in_halves])
def test_reductions_of_every_type(ranks, check):
    ranks.run(check)


def check_groups() -> None:
    group = world()
    rank, size = group.rank(), group.size()
    again = mx.distributed.init()
    assert (again.rank(), again.size()) == (rank, size)
    every_other = group.split(rank % 2)
    assert (every_other.rank(), every_other.size()) == (rank // 2, size // 2)
    pair = group.split(rank // 2)
    assert (pair.rank(), pair.size()) == (rank % 2, 2)
    # Gathering the sums of pairs over every other rank gives the sums of all pairs.
    total = mx.distributed.all_sum(mx.full((1, 8), float(rank)), group=pair)
    found = mx.distributed.all_gather(total, group=every_other)
    expected = mx.arange(size).reshape(size // 2, 2).sum(-1, keepdims=True)
    assert found.shape == (size // 2, 8)
    assert mx.all(found == expected).item()


def test_groups_split_and_mix(ranks):
    ranks.run(check_groups)


def check_gathers() -> None:
    group = world()
    rank, size = group.rank(), group.size()
    half = group.split(rank % 2)
    for dtype in [*INTEGERS, *FLOATS, "bool_"]:
        x = mx.ones((2, 2, 4), getattr(mx, dtype))
        for each in (None, half):
            y = mx.distributed.all_gather(x, group=each)
            assert y.shape == ((size if each is None else half.size()) * 2, 2, 4)
            assert y.dtype == x.dtype
            assert mx.all(y == 1).item()
    for count in (7, 1024, 1_000_003):
        base = mx.arange(count) % 100_003
        y = mx.distributed.all_gather(base + rank).reshape(size, count)
        for other in range(size):
            assert mx.array_equal(y[other], base + other).item(), (count, other)


def test_gathers_of_every_type(ranks):
    ranks.run(check_gathers)


def check_scatters() -> None:
    group = world()
    rank, size = group.rank(), group.size()
    for dtype in ("float32", "float16", "bfloat16"):
        for shape in ((8,), (64,), (1024,), (1024, 1024)):
            x = mx.random.uniform(shape=shape, key=mx.random.key(rank)) * 10
            x = x.astype(getattr(mx, dtype))
            share = shape[0] // size
            part = mx.distributed.all_sum(x)[rank * share : (rank + 1) * share]
            found = mx.distributed.sum_scatter(x)
            assert error(found, part, True) <= FLOATS[dtype], (dtype, shape)


def test_a_scatter_is_a_part_of_the_sum(ranks):
    ranks.run(check_scatters)


def check_neighbours() -> None:
    group = world()
    rank, size = group.rank(), group.size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for dtype, shape in cases():
        x = of_everyone(size, shape, dtype)
        if rank % 2 == 0:
            sent = mx.distributed.send(x[rank], right)
            got = mx.distributed.recv_like(sent, left)
            mx.eval(sent, got)
        else:
            got = mx.distributed.recv_like(x[rank], left)
            sent = mx.distributed.send(x[rank], right)
            mx.eval(got, sent)
        assert mx.array_equal(sent, x[rank]).item(), (dtype, shape)
        assert mx.array_equal(got, x[left]).item(), (dtype, shape)


def test_neighbours_exchange_in_one_evaluation(ranks):
    ranks.run(check_neighbours)


def check_pairs() -> None:
    pair = world().split(world().rank() // 2)
    other, sends = 1 - pair.rank(), pair.rank() == 0
    x = mx.ones(10)
    for _ in range(10):
        if sends:
            mx.eval(mx.distributed.send(2 * x, other, group=pair))
        else:
            x = mx.distributed.recv_like(x, other, group=pair)
            mx.eval(x)
        sends = not sends
    assert mx.all(x == (1024 if pair.rank() == 0 else 512)).item()
    # A message is evaluated together with an unrelated computation.
    y = mx.ones((5, 5)) + mx.array(2.0)
    last = (
        mx.distributed.send(2 * x, other, group=pair)
        if sends
        else mx.distributed.recv_like(x, other, group=pair)
    )
    mx.eval(y, last)
    assert mx.all(y == 3).item()


def test_pairs_pass_a_message_back_and_forth(ranks):
    ranks.run(check_pairs)


def check_buckets() -> None:
    world()
    installed, calls = mx.distributed.all_sum, []

    def counted(x, **options):
        calls.append(x.dtype)
        return installed(x, **options)

    mx.distributed.all_sum = counted
    try:
        gradients = [mx.ones(10) for _ in range(10)]
        for size, expected in ((32 << 20, 1), (4 * 50, 2), (0, 10)):
            calls.clear()
            averaged = average_gradients(gradients, all_reduce_size=size)
            mx.eval(averaged)
            assert len(averaged) == 10
            assert all(mx.all(each == 1).item() for each in averaged)
            assert calls == [mx.float32] * expected
    finally:
        mx.distributed.all_sum = installed


def test_gradients_are_averaged_in_as_few_calls_as_fit(ranks):
    ranks.run(check_buckets)


def check_peaks() -> None:
    world()
    x = mx.random.normal((1024,))
    scale = mx.array(2.0)
    mx.eval(x, scale)
    peaks = []
    for step in (lambda y: y, lambda y: y * scale):
        mx.synchronize()
        mx.reset_peak_memory()
        mx.eval(step(mx.distributed.all_sum(x)))
        mx.synchronize()
        peaks.append(mx.get_peak_memory())
    assert peaks[0] == peaks[1]


def test_what_follows_a_sum_needs_no_memory(ranks):
    ranks.run(check_peaks)


# --- layers -------------------------------------------------------------------------------------


def check_four_layers() -> None:
    group = world()
    mx.random.seed(0xF0F0F0F0)
    share = 128 // group.size()
    own = slice(group.rank() * share, (group.rank() + 1) * share)
    whole = nn.Sequential(*(nn.Linear(128, 128) for _ in range(4)))
    kinds = ["all-to-sharded", "sharded-to-all"] * 2
    parts = nn.Sequential(
        *(shard_linear(layer, kind) for layer, kind in zip(whole.layers, kinds, strict=True))
    )
    x, weights = mx.random.normal((4, 128)), mx.random.normal((4, 128))

    def loss(model, x, weights):
        return (model(x) * weights).sum()

    expected, gradients = nn.value_and_grad(whole, loss)(whole, x, weights)
    found, shares = nn.value_and_grad(parts, loss)(parts, x, weights)
    assert mx.allclose(found, expected, rtol=1e-4).item()
    for number, kind in enumerate(kinds):
        mine = {k: shares["layers"][number][k] for k in ("weight", "bias")}
        all_of_it = gradients["layers"][number]
        widens = kind == "all-to-sharded"
        weight = all_of_it["weight"][own] if widens else all_of_it["weight"][:, own]
        bias = all_of_it["bias"][own] if widens else all_of_it["bias"]
        assert mx.allclose(mine["weight"], weight, atol=1e-5, rtol=1e-4).item(), number
        assert mx.allclose(mine["bias"], bias, atol=1e-5, rtol=1e-4).item(), number


def test_four_sharded_layers_have_the_gradients_of_whole_ones(ranks):
    ranks.run(check_four_layers)


def check_quantized(mode: str) -> None:
    group = world()
    mx.random.seed(0xF0F0F0F0)
    share = 1024 // group.size()
    own = slice(group.rank() * share, (group.rank() + 1) * share)
    options = {"group_size": 32, "bits": 8, "mode": mode} if mode == "mxfp8" else {}
    layer = nn.Linear(1024, 1024).to_quantized(**options)
    widening, narrowing = (
        shard_linear(layer, kind) for kind in ("all-to-sharded", "sharded-to-all")
    )
    x = mx.random.normal((4, 1024))
    assert mx.allclose(widening(x), layer(x)[:, own], atol=1e-5).item()
    assert mx.allclose(narrowing(x[:, own]), layer(x), atol=1e-4, rtol=1e-4).item()
    for part in (widening, narrowing):
        assert part.mode == mode
        assert (part.get("biases") is None) == (mode == "mxfp8")


@pytest.mark.parametrize("mode", ["affine", "mxfp8"])
def test_quantized_layers(ranks, mode: str):
    ranks.run(check_quantized, mode)


class Convolution(nn.Module):
    def __init__(self, inputs: int, outputs: int, sums: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel_size=3)
        self.sums = sums

    def __call__(self, x):
        x = self.conv(x)
        return mx.distributed.all_sum(x) if self.sums else x


def check_predicate() -> None:
    world()
    mx.random.seed(0xF0F0F0F0)
    sizes = [(3, 128), (128, 128), (128, 128), (128, 3)]
    whole = nn.Sequential(*(Convolution(*size) for size in sizes))
    parts = nn.Sequential(*(Convolution(*size, i % 2 == 1) for i, size in enumerate(sizes)))
    parts.update(whole.parameters())

    def axis(path: str, weight: mx.array) -> int | None:
        _, layer, *_, kind = path.split(".")
        if int(layer) % 2 == 0:
            return 0
        return None if kind == "bias" else -1

    shard_inplace(parts, axis)
    x = mx.random.normal((4, 16, 16, 3))
    # The ranks' results are summed, so each rank adds only its share of the bias.
    for layer in parts.layers:
        if layer.sums:
            layer.conv.bias = layer.conv.bias / mx.distributed.init().size()
    assert mx.allclose(parts(x), whole(x), atol=1e-5, rtol=1e-4).item()


def test_a_predicate_selects_the_sharding(ranks):
    ranks.run(check_predicate)


def check_clipping(with_group: bool) -> None:
    group = world()
    options = {"group": group} if with_group else {}
    shares = {"a": mx.full((4, 3), 3.0), "b": mx.full((5,), 3.0)}
    norm = math.sqrt(group.size() * 17) * 3
    for limit, scale in ((1e9, 1.0), (1.0, 1 / norm)):
        clipped, found = clip_grad_norm_sharded(shares, max_norm=limit, **options)
        assert abs(found.item() / norm - 1) < 1e-5
        for key, share in shares.items():
            assert mx.allclose(clipped[key], share * scale, rtol=1e-4).item()


@pytest.mark.parametrize("with_group", [True, False])
def test_shards_are_clipped_by_the_norm_of_all(ranks, with_group: bool):
    ranks.run(check_clipping, with_group)


def check_sharded_gradients(dtype: str) -> None:
    group = world()
    rank, size = group.rank(), group.size()
    mx.random.seed(1)
    whole = nn.Linear(8, 16)
    whole.set_dtype(getattr(mx, dtype))
    parts = nn.Linear(8, 16)
    parts.update(whole.parameters())
    parts = fully_shard(parts)
    x = mx.random.normal((4, 8)).astype(getattr(mx, dtype))

    def loss(model, x):
        return model(x).square().sum()

    _, expected = nn.value_and_grad(whole, loss)(whole, x)
    _, found = nn.value_and_grad(parts, loss)(parts, x)
    share = 16 // size
    own = slice(rank * share, (rank + 1) * share)
    for key in ("weight", "bias"):
        mine = found["module"][key]
        assert mine.dtype == getattr(mx, dtype)
        assert mx.allclose(mine, expected[key][own], rtol=FLOATS[dtype] * 10, atol=1e-2).item()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_fully_sharded_gradients_keep_their_type(ranks, dtype: str):
    ranks.run(check_sharded_gradients, dtype)


def check_adjoint_of_gather() -> None:
    group = world()
    rank, size = group.rank(), group.size()
    weights = mx.arange(float(size * 3)).reshape(size, 3)
    gradient = mx.grad(lambda x: (mx.distributed.all_gather(x) * weights).sum())(mx.ones((1, 3)))
    assert mx.array_equal(gradient, weights[rank : rank + 1]).item()


def test_the_gradient_of_a_gather_is_of_the_own_slot(ranks):
    ranks.run(check_adjoint_of_gather)
