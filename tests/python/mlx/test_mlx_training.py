"""Training: averaged gradients, sharded layers, and models that match a single process."""

from __future__ import annotations

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map
from mlx_ranks import error_of

import mccl
import mccl.mlx
from mccl.mlx.gradients import buckets_of


def world():
    mccl.mlx.install()
    return mx.distributed.init(strict=True)


def equal(found: mx.array, expected: mx.array, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    found, expected = (np.array(each.astype(mx.float32)) for each in (found, expected))
    assert np.abs(found - expected).max(initial=0) <= tolerance, (found, expected)


def trees_equal(found, expected, tolerance: float = 1e-5) -> None:
    found, expected = tree_flatten(found), tree_flatten(expected)
    assert [key for key, _ in found] == [key for key, _ in expected]
    for (_, a), (_, b) in zip(found, expected, strict=True):
        equal(a, b, tolerance)


# --- averaging ----------------------------------------------------------------------------------


def gradients_of(rank: int):
    """Returns a tree of arrays of several types and shapes, which differ from rank to rank."""

    def numbers(shape, dtype=mx.float32, seed=0):
        generator = np.random.default_rng([rank, seed])
        return mx.array(generator.integers(-8, 9, shape).astype(np.float32)).astype(dtype)

    return {
        "embedding": numbers((50, 8), seed=1),
        "layers": [
            {"weight": numbers((8, 8), mx.float16, 2 + i), "bias": numbers((8,), seed=30 + i)}
            for i in range(5)
        ],
        "scale": numbers((), seed=3),
        "none": numbers((0, 4), seed=4),
        "wide": numbers((30, 100), mx.bfloat16, 5),
        "steps": numbers((3,), mx.int32, 6),
    }


def check_average(size_of_bucket, overlap: bool, own_stream: bool) -> None:
    group = world()
    size = group.size()
    stream = mx.new_stream(mx.cpu) if own_stream else None
    everyone = [gradients_of(rank) for rank in range(size)]
    expected = tree_map(lambda *all_of: sum(all_of) / size, *everyone)
    mine = everyone[group.rank()]
    found = mccl.mlx.average_gradients(
        mine, all_reduce_size=size_of_bucket, communication_stream=stream, overlap=overlap
    )
    trees_equal(found, expected, 1e-2)
    for (key, a), (_, b) in zip(tree_flatten(found), tree_flatten(expected), strict=True):
        assert a.dtype == b.dtype, key
    trees_equal(nn.average_gradients(mine, communication_stream=stream), expected, 1e-1)
    assert mccl.mlx.average_gradients({}) == {}


@pytest.mark.parametrize("size_of_bucket", [0, 100, 2000, 1 << 25])
@pytest.mark.parametrize("overlap", [True, False])
def test_average_gradients(ranks, size_of_bucket, overlap):
    ranks.run(check_average, size_of_bucket, overlap, size_of_bucket == 2000)


def test_buckets_hold_one_type_each_from_the_last_to_the_first():
    arrays = [array for _, array in tree_flatten(gradients_of(0))]
    for size in (0, 1, 100, 3000, 1 << 20):
        buckets = list(buckets_of(arrays, size))
        assert sorted(i for bucket in buckets for i in bucket) == list(range(len(arrays)))
        for bucket in buckets:
            assert bucket == sorted(bucket, reverse=True)
            assert len({arrays[i].dtype for i in bucket}) == 1
            # No bucket is full before its last array.
            assert sum(arrays[i].nbytes for i in bucket[:-1]) < max(size, 1)
    assert len(list(buckets_of(arrays, 0))) >= len(arrays) - 1


def check_stream_is_used() -> None:
    group = world()
    gradients = {"w": mx.ones((4,)), "b": mx.ones((2,), mx.float16)}
    streams = []
    original = mccl.mlx.gradients.all_mean

    def spy(x, *, group, stream):
        streams.append(stream)
        return original(x, group=group, stream=stream)

    mccl.mlx.gradients.all_mean = spy
    try:
        chosen = mx.new_stream(mx.cpu)
        for size in (0, 1 << 20):
            mx.eval(mccl.mlx.average_gradients(gradients, group, size, chosen))
        mx.eval(mccl.mlx.average_gradients(gradients, group))
    finally:
        mccl.mlx.gradients.all_mean = original
    assert streams[:4] == [chosen] * 4
    assert len(streams) == 6
    assert all(stream is not None and stream != mx.default_stream(mx.cpu) for stream in streams)


def test_the_stream_is_never_dropped(two):
    two.run(check_stream_is_used)


def check_overlap() -> None:
    """A barrier waits for averages started before it, although nothing has evaluated them."""
    group = world()
    mccl.reset_metrics()
    gradients = {"first": mx.full((1000,), 1.0), "last": mx.full((1000,), 2.0)}
    lazy = mccl.mlx.average_gradients(gradients, group, 0, overlap=False)
    mccl.mlx.barrier(group)
    assert mccl.get_metrics().total_ops == 1
    eager = mccl.mlx.average_gradients(gradients, group, 0)
    mccl.mlx.barrier(group)
    assert mccl.get_metrics().total_ops == 4
    assert eager["last"][0].item() == lazy["last"][0].item() == 2.0


def test_communication_starts_before_evaluation_is_requested(two):
    two.run(check_overlap)


def check_computing_goes_on() -> None:
    """Rank 1 averages only after rank 0 reports that it has computed its next bucket."""
    group = world()
    token, stream = group.split(0), mx.new_stream(mx.cpu)
    first, last = mx.full((1000,), 1.0) * 3, mx.full((1000,), 2.0)
    if group.rank() == 1:
        mx.eval(mx.distributed.recv_like(first, 0, group=token, stream=stream))
    averaged = mccl.mlx.average_gradients({"first": first, "last": last}, group, 0)
    if group.rank() == 0:
        mx.eval(first)
        mx.eval(mx.distributed.send(first, 1, group=token, stream=stream))
    assert averaged["first"][9].item() == 3.0
    assert averaged["last"][9].item() == 2.0


def test_the_next_bucket_is_computed_while_one_travels(two):
    two.run(check_computing_goes_on)


def check_in_compiled_step() -> None:
    group = world()

    @mx.compile
    def step(x):
        return mccl.mlx.average_gradients({"a": x * 2, "b": x.astype(mx.float16)}, group)

    for value in (1.0, 3.0):
        averaged = step(mx.full((5,), value + group.rank()))
        mean = value + (group.size() - 1) / 2
        equal(averaged["a"], mx.full((5,), 2 * mean))
        equal(averaged["b"], mx.full((5,), mean))


def test_average_gradients_in_a_compiled_step(two):
    two.run(check_in_compiled_step)


def check_differing_trees() -> None:
    group = world().split(0)
    gradients = {"a": mx.ones((4 + group.rank(),))}
    text = error_of(lambda: mx.eval(mccl.mlx.average_gradients(gradients, group)), RuntimeError)
    assert "rank" in text


def test_trees_that_differ_are_an_error(two):
    two.run(check_differing_trees)


def check_leaf(leaf, name: str) -> None:
    gradients = {"layers": [{"weight": mx.ones((2,))}, {"weight": leaf}]}
    text = error_of(lambda: mccl.mlx.average_gradients(gradients, world()), TypeError)
    assert text.startswith(f"average_gradients: layers.1.weight: expected an array; found {name}")


@pytest.mark.parametrize(("leaf", "name"), [(3.0, "float 3.0"), (None, "NoneType"), ("x", "str")])
def test_a_leaf_that_is_no_array_is_named(two, leaf, name):
    two.run(check_leaf, leaf, name)


# --- sharded layers -----------------------------------------------------------------------------


def check_shard_linear(bias: bool, quantized: bool) -> None:
    group = world()
    mx.random.seed(7)
    # These sizes let 8 ranks split a layer whose quantisation groups have 64 elements.
    inner = 64 * 8
    layer = nn.Linear(inner, inner, bias=bias)
    if quantized:
        layer = layer.to_quantized()
    x = mx.random.normal((4, inner))
    rank, size = group.rank(), group.size()
    share = inner // size
    own = slice(rank * share, (rank + 1) * share)

    widening = nn.layers.distributed.shard_linear(layer, "all-to-sharded", group=group)
    equal(widening(x), layer(x)[:, own], 1e-4)
    narrowing = nn.layers.distributed.shard_linear(layer, "sharded-to-all", group=group)
    equal(narrowing(x[:, own]), layer(x), 1e-4)

    weights = mx.random.normal((4, inner))
    whole = mx.grad(lambda x: (layer(x) * weights).sum())(x)
    parts = mx.grad(lambda x: (widening(x) * weights[:, own]).sum())(x)
    equal(parts, whole, 1e-3)
    part = mx.grad(lambda x: (narrowing(x) * weights).sum())(x[:, own])
    equal(part, whole[:, own], 1e-3)
    if quantized:
        return

    whole = gradients_by(layer, x, weights)
    equal(gradients_by(widening, x, weights[:, own])["weight"], whole["weight"][own], 1e-3)
    equal(gradients_by(narrowing, x[:, own], weights)["weight"], whole["weight"][:, own], 1e-3)
    if bias:
        equal(gradients_by(widening, x, weights[:, own])["bias"], whole["bias"][own], 1e-3)


def gradients_by(module: nn.Module, x: mx.array, weights: mx.array):
    def loss(x):
        return (module(x) * weights).sum()

    return nn.value_and_grad(module, loss)(x)[1]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("quantized", [False, True])
def test_shard_linear(ranks, bias, quantized):
    ranks.run(check_shard_linear, bias, quantized)


class Block(nn.Module):
    """An MLP that sums over ranks if it has a group."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16, bias=False)
        self.group = None

    def __call__(self, x):
        y = self.down(nn.gelu(self.up(x)))
        return y if self.group is None else mx.distributed.all_sum(y, group=self.group)


def check_shard_inplace() -> None:
    group = world()
    mx.random.seed(3)
    block, whole = Block(), Block()
    whole.update(block.parameters())
    x = mx.random.normal((5, 16))
    expected = whole(x)
    nn.layers.distributed.shard_inplace(block.up, "all-to-sharded", group=group)
    nn.layers.distributed.shard_inplace(block.down, "sharded-to-all", group=group)
    block.group = group
    assert block.up.weight.shape == (64 // group.size(), 16)
    equal(block(x), expected, 1e-4)
    # A fused layer of three segments.
    fused = nn.Linear(16, 3 * 64)
    parts = mx.split(fused(x), 3, axis=-1)
    nn.layers.distributed.shard_inplace(fused, "all-to-sharded", segments=3, group=group)
    for found, part in zip(mx.split(fused(x), 3, axis=-1), parts, strict=True):
        equal(found, mx.split(part, group.size(), axis=-1)[group.rank()], 1e-4)


def test_shard_inplace(ranks):
    ranks.run(check_shard_inplace)


def check_fully_shard() -> None:
    group = world()
    rank, size = group.rank(), group.size()
    mx.random.seed(5)
    model, whole = Block(), Block()
    whole.update(model.parameters())
    sharded = nn.layers.distributed.fully_shard(model, group=group)
    optimizer, single = optim.SGD(0.1), optim.SGD(0.1)
    x = mx.random.normal((8 * size, 16))
    y = mx.random.normal((8 * size, 16))
    mine = slice(rank * 8, rank * 8 + 8)

    def loss(model, x, y):
        return ((model(x) - y) ** 2).mean()

    for _ in range(3):
        value, gradients = nn.value_and_grad(whole, partial(loss, whole))(x, y)
        clipped, norm = optim.clip_grad_norm(gradients, 0.5)
        single.update(whole, clipped)

        part, gradients = nn.value_and_grad(sharded, partial(loss, sharded))(x[mine], y[mine])
        clipped, norm_of_shards = nn.utils.clip_grad_norm_sharded(gradients, 0.5, group=group)
        optimizer.update(sharded, clipped)
        equal(mx.distributed.all_sum(part, group=group) / size, value, 1e-5)
        equal(norm_of_shards, norm, 1e-5)
    weight = sharded.module.up.weight
    assert weight.shape == (64 // size, 16)
    equal(mx.distributed.all_gather(weight, group=group), whole.up.weight, 1e-5)
    equal(sharded(x), whole(x), 1e-4)


def test_fully_shard_and_clip_grad_norm_sharded(ranks):
    ranks.run(check_fully_shard)


# --- a model ------------------------------------------------------------------------------------


def train_digits(rank: int, size: int, average) -> dict:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = mx.array(digits.data.astype(np.float32) / 16)
    labels = mx.array(digits.target)
    mx.random.seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = optim.SGD(0.2, momentum=0.9)

    def loss(images, labels):
        return nn.losses.cross_entropy(model(images), labels, reduction="mean")

    step = nn.value_and_grad(model, loss)
    order = np.random.default_rng(0).permutation(len(labels))
    for start in range(0, 64 * 28, 64):
        batch = order[start : start + 64]
        mine = mx.array(np.split(batch, size)[rank])
        _, gradients = step(images[mine], labels[mine])
        optimizer.update(model, average(gradients))
        mx.eval(model.parameters(), optimizer.state)
    accuracy = (model(images).argmax(1) == labels).astype(mx.float32).mean().item()
    return {"parameters": model.parameters(), "accuracy": accuracy}


def check_digits(ours: bool) -> None:
    group = world()
    average = (
        partial(mccl.mlx.average_gradients, all_reduce_size=3000)
        if ours
        else (nn.average_gradients)
    )
    found = train_digits(group.rank(), group.size(), average)
    alone = train_digits(0, 1, lambda gradients: gradients)
    trees_equal(found["parameters"], alone["parameters"], 1e-4)
    assert alone["accuracy"] > 0.8
    for _, parameter in tree_flatten(found["parameters"]):
        bits = mx.view(parameter, mx.uint32)
        assert mx.array_equal(mx.distributed.all_max(bits, group=group), bits).item()


@pytest.mark.parametrize("ours", [True, False], ids=["mccl.mlx", "mlx.nn"])
def test_training_on_digits_matches_one_process(ranks, ours):
    pytest.importorskip("sklearn")
    ranks.run(check_digits, ours)
