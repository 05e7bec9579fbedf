"""Compressed gradients of MLX."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_map
from mlx_ranks import MlxRanks

import mccl.mlx

STEPS = 20


@pytest.fixture(scope="module")
def ranks():
    with MlxRanks(3, MCCL_TRANSPORT="tcp") as processes:
        yield processes


def world():
    return mccl.mlx.init(strict=True)


def numbers(shape, dtype=mx.float32, seed=0) -> mx.array:
    generator = np.random.default_rng(seed)
    return mx.array(generator.normal(size=shape).astype(np.float32)).astype(dtype)


def check_compression(codec: str, worst: float) -> None:
    group = world()
    size, rank = group.size(), group.rank()
    everyone = [
        {"weight": numbers((200, 100), mx.float32, i), "bias": numbers((20000,), seed=50 + i)}
        for i in range(size)
    ]
    exact = tree_map(lambda *all_of: sum(all_of) / size, *everyone)
    compression = mccl.mlx.Compression(codec, ratio=0.1, warm_up=1)
    options = {"compression": compression, "all_reduce_size": 1 << 16}
    first = mccl.mlx.average_gradients(everyone[rank], **options)
    assert mx.allclose(first["weight"], exact["weight"], atol=1e-5)  # the warm-up step is exact
    assert not compression.residuals
    total = mx.zeros_like(exact["weight"])
    for _ in range(STEPS):
        found = mccl.mlx.average_gradients(everyone[rank], **options)
        total = total + found["weight"]
    assert mx.allclose(found["bias"], exact["bias"], atol=1e-5)
    assert set(compression.residuals) == {"weight"}
    left = mx.distributed.all_sum(compression.residuals["weight"], group=group) / size
    # Nothing is lost: the residuals on the ranks make up the difference.
    assert mx.allclose(total + left, STEPS * exact["weight"], atol=1e-3 * STEPS)
    error = mx.linalg.norm(total / STEPS - exact["weight"]) / mx.linalg.norm(exact["weight"])
    assert error.item() < worst
    by_name = mccl.mlx.average_gradients(everyone[rank], compression=codec)["weight"]
    everywhere = mx.distributed.all_gather(by_name[None], group=group)
    assert mx.array_equal(everywhere, mx.broadcast_to(by_name[None], everywhere.shape)).item()
    again = mccl.mlx.Compression(codec)
    again.load_state_dict(compression.state_dict())
    assert again.step == STEPS + 1
    with pytest.raises(ValueError, match="did you mean int8"):
        mccl.mlx.average_gradients(everyone[rank], compression="int9")
    with pytest.raises(ValueError, match="cannot do; call average_gradients outside"):
        mx.compile(lambda x: mccl.mlx.average_gradients({"w": x}, compression=compression))(
            mx.ones((3, 3))
        )


def large_among_small(large: float, small: float, dtype) -> mx.array:
    """Returns a gradient with more large elements than topk sends, so small ones are never sent."""
    return mx.concatenate([mx.full((400,), large), mx.full((3696,), small)]).astype(dtype)


def every_gradient(name: str, gradient: mx.array) -> bool:
    return False


def check_small_steps_beside_large_ones(type_name: str) -> None:
    """The sum of the unsent small elements is kept.

    In bfloat16, a sum of ones would stop at 256.
    """
    group = world()
    steps = 300
    gradient = large_among_small(3000.0, 1.0, getattr(mx, type_name))
    compression = mccl.mlx.Compression("topk", ratio=0.01, exact=every_gradient)
    for _ in range(steps):
        found = mccl.mlx.average_gradients({"w": gradient}, compression=compression)["w"]
        assert found.dtype == gradient.dtype
        mx.eval(found)
    assert found[400:].abs().max().item() == 0
    kept = compression.residuals["w"]
    assert kept.dtype == mx.float32
    left = mx.distributed.all_sum(kept, group=group) / group.size()
    assert mx.allclose(left[400:], mx.full((3696,), steps), atol=1e-3 * steps)


def check_a_mean_too_large_for_its_type() -> None:
    """A mean that is finite in 32 bits but not in the gradient's type changes no residual."""
    world()
    gradient = large_among_small(30000.0, 0.0, mx.float16)
    compression = mccl.mlx.Compression("topk", ratio=0.01, exact=every_gradient)
    before = None
    for _ in range(20):
        found = mccl.mlx.average_gradients({"w": gradient}, compression=compression)["w"]
        now = np.array(compression.residuals["w"])
        if not mx.all(mx.isfinite(found)).item():
            assert np.array_equal(now, before)
            return
        before = now
    raise AssertionError("no mean was too large")


def check_steps_that_are_not_finite() -> None:
    group = world()
    weight = numbers((300, 100), seed=group.rank())
    compression = mccl.mlx.Compression("int8")
    mx.eval(mccl.mlx.average_gradients({"w": weight}, compression=compression))
    before = np.array(compression.residuals["w"])
    assert np.any(before)
    bad = mx.concatenate([mx.full((1, 100), mx.inf if group.rank() == 0 else 0.0), weight[1:]])
    found = mccl.mlx.average_gradients({"w": bad}, compression=compression)["w"]
    assert not mx.all(mx.isfinite(found)).item()
    assert np.array_equal(np.array(compression.residuals["w"]), before)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_residuals_of_short_floats_are_float32(ranks, dtype):
    ranks.run(check_small_steps_beside_large_ones, dtype)


def test_a_mean_that_overflows_its_type_leaves_residuals_as_they_were(ranks):
    ranks.run(check_a_mean_too_large_for_its_type)


def test_a_step_that_is_not_finite_leaves_residuals_as_they_were(ranks):
    ranks.run(check_steps_that_are_not_finite)


def test_topk_lowers_its_ratio_step_by_step():
    compression = mccl.mlx.Compression("topk", warm_up=2, ramp=3)
    shares = []
    for step in range(7):
        compression.step = step
        shares.append(compression.share)
    assert shares[2:] == [0.25, 0.0625, 0.015625, 0.01, 0.01]
    with pytest.raises(ValueError, match="ramp applies only to topk"):
        mccl.mlx.Compression("int8", ramp=3)


def test_an_unknown_codec_is_refused_at_once():
    with pytest.raises(ValueError, match="did you mean int8"):
        mccl.mlx.Compression("int9")


@pytest.mark.parametrize(("codec", "worst"), [("bf16", 1e-3), ("int8", 1e-3), ("topk", 0.5)])
def test_gradients_travel_rounded_and_nothing_is_lost(ranks, codec, worst):
    ranks.run(check_compression, codec, worst)
