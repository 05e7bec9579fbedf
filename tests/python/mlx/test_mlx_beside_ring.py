"""MCCL and MLX's own ring, in the same processes, give the same bits and use the same memory."""

from __future__ import annotations

import functools
import json
import os

import mlx.core as mx
import numpy as np
import pytest
from free_port import free_port
from mlx_ranks import MlxRanks

import mccl.mlx

DTYPES = [
    "bool_", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64",
]  # fmt: skip


def bits(x: mx.array) -> bytes:
    if x.dtype == mx.bfloat16:
        x = mx.view(x, mx.uint16)
    return np.array(x).tobytes()


def values(rank: int, dtype: str) -> mx.array:
    """Returns values from the whole range of the type, so that sums wrap and round."""
    generator = np.random.default_rng([rank, DTYPES.index(dtype)])
    if dtype == "complex64":
        # There are few real parts, so imaginary parts often decide which number is larger.
        parts = generator.integers(-2, 3, 500), generator.normal(size=500)
        return mx.array((parts[0] + 1j * parts[1]).astype(np.complex64))
    if "float" in dtype:
        return mx.array(generator.normal(size=500) * 100).astype(getattr(mx, dtype))
    name = dtype.rstrip("_")
    if name == "bool":
        return mx.array(generator.integers(0, 2, 500) == 1)
    limits = np.iinfo(name)
    return mx.array(generator.integers(limits.min, limits.max, 500, name, endpoint=True))


def check_bits() -> None:
    ring = mx.distributed.init(strict=True, backend="ring")
    ours = mccl.mlx.init(True, "mccl")
    assert (ring.rank(), ring.size()) == (ours.rank(), ours.size())
    for dtype in DTYPES:
        x = values(ours.rank(), dtype)
        for name in ("all_sum", "all_max", "all_min", "all_gather"):
            call = getattr(mx.distributed, name)
            theirs, found = call(x, group=ring), call(x, group=ours)
            assert found.dtype == theirs.dtype, (name, dtype)
            assert bits(found) == bits(theirs), (name, dtype)


#: Number of elements of an array whose peak memory is measured: 4 MiB.
LARGE = 1 << 20
STEPS = 8


def peak_of(call, *arguments) -> float:
    """Returns the peak memory of the call in such arrays, beyond the memory in use before."""
    held = [mx.ones((LARGE,))]
    mx.eval(held)
    mx.synchronize()
    before = mx.get_active_memory() - held[0].nbytes
    mx.reset_peak_memory()
    result = call(held, *arguments)
    mx.eval(result)
    mx.synchronize()
    return round((mx.get_peak_memory() - before) / (4 * LARGE), 1)


def chain(held: list[mx.array], step) -> mx.array:
    x = held.pop()
    for _ in range(STEPS):
        x = step(x) * 0.5
    return x


def chain_of_gathers(held: list[mx.array], group) -> mx.array:
    """Evaluates each step, because otherwise timing decides how early MLX allocates outputs."""
    x = held.pop()
    for _ in range(STEPS):
        x = mx.distributed.all_gather(x[: x.size // group.size()], group=group) * 0.5
        mx.eval(x)
    return x


def chain_of_messages(held: list[mx.array], group) -> mx.array:
    x = held.pop()
    for _ in range(STEPS):
        if group.rank() == 0:
            x = mx.distributed.send(x, 1, group=group) * 0.5
        else:
            x = mx.distributed.recv_like(x, 0, group=group) * 0.5
        mx.eval(x)
    return x


def peaks_with(group) -> dict[str, float]:
    peaks = {
        name: peak_of(chain, functools.partial(getattr(mx.distributed, name), group=group))
        for name in ("all_sum", "all_max", "all_min")
    }
    peaks["all_gather"] = peak_of(chain_of_gathers, group)
    peaks["messages"] = peak_of(chain_of_messages, group)
    return peaks


def check_peaks() -> None:
    ring = mx.distributed.init(strict=True, backend="ring")
    ours = mccl.mlx.init(True, "mccl")
    theirs, found = peaks_with(ring), peaks_with(ours)
    assert found == theirs, (found, theirs)
    for name in ("all_sum", "all_max", "all_min", "messages"):
        assert found[name] == 1.0, found
    for call in (mccl.mlx.all_sum, mccl.mlx.all_mean):
        assert peak_of(chain, functools.partial(call, group=ours)) == 1.0


@pytest.fixture(scope="module")
def beside_ring(tmp_path_factory):
    hosts = tmp_path_factory.mktemp("ring") / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{free_port()}"] for _ in range(2)]))
    with MlxRanks(2, MLX_HOSTFILE=str(hosts)) as ranks:
        ranks.run_each(join_ring, [(rank,) for rank in range(2)])
        yield ranks


def join_ring(rank: int) -> None:
    os.environ["MLX_RANK"] = str(rank)
    mx.distributed.init(strict=True, backend="ring")


def test_bits_are_those_of_mlx_own_ring(beside_ring):
    beside_ring.run(check_bits)


def test_results_are_handed_on_as_those_of_mlx_own_ring(beside_ring):
    beside_ring.run(check_peaks)
