"""MCCL and MLX's own ring, side by side in the same processes, give the same bits."""

from __future__ import annotations

import json

import mlx.core as mx
import numpy as np
from mlx_ranks import MlxRanks, free_port

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
    """Of the whole range of the type, so that sums wrap and round."""
    generator = np.random.default_rng([rank, DTYPES.index(dtype)])
    if dtype == "complex64":
        # Few real parts, so that imaginary ones decide which is larger.
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
    ours = mccl.mlx.init("mccl", strict=True)
    assert (ring.rank(), ring.size()) == (ours.rank(), ours.size())
    for dtype in DTYPES:
        x = values(ours.rank(), dtype)
        for name in ("all_sum", "all_max", "all_min", "all_gather"):
            call = getattr(mx.distributed, name)
            theirs, found = call(x, group=ring), call(x, group=ours)
            assert found.dtype == theirs.dtype, (name, dtype)
            assert bits(found) == bits(theirs), (name, dtype)


def test_bits_are_those_of_mlx_own_ring(tmp_path):
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{free_port()}"] for _ in range(2)]))
    with MlxRanks(2, MLX_HOSTFILE=str(hosts)) as ranks:
        ranks.run_each(join_ring_then, [(rank,) for rank in range(2)])


def join_ring_then(rank: int) -> None:
    import os

    os.environ["MLX_RANK"] = str(rank)
    check_bits()
