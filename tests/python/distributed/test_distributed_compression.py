"""Sums of arrays with compression."""

from __future__ import annotations

import numpy as np
import pytest
from world_pool import WorldPool

VALUE = np.float32(1 + 2.0**-20)


@pytest.fixture(scope="module")
def by_tcp():
    ranks = WorldPool(2, transport="tcp")
    yield ranks
    ranks.close()


def check_calls(world) -> None:
    import mccl.distributed as dist

    x = np.full(1000, VALUE)
    assert (world.all_reduce(x, "avg") == VALUE).all()
    for codec in ("bf16", "int8", ("topk", 1.0)):
        expected = VALUE if codec == ("topk", 1.0) else np.float32(1.0)
        found = world.all_reduce(x, "avg", compression=codec)
        assert np.abs(found - expected).max() < 2e-6, codec
    assert (world.all_reduce(x, "avg", compression="none") == VALUE).all()
    assert (world.reduce_scatter(x, "avg", compression="bf16") == 1).all()
    work = world.all_reduce(x, "avg", compression="bf16", wait=False)
    assert (work.wait() == 1).all()
    for wrong, said in (
        ("int9", "did you mean int8"),
        (("int8", 0.5), "expected the name of a codec"),
        (5, "expected the name of a codec"),
        (("topk", 0.0), "above 0"),
    ):
        with pytest.raises(dist.InvalidArgument, match=said):
            world.all_reduce(x, compression=wrong)
    with pytest.raises(dist.InvalidArgument, match="sums and averages of floats"):
        world.all_reduce(np.ones(10, np.int32), compression="int8")


def test_a_call_may_be_rounded(by_tcp):
    by_tcp.run(check_calls)


def check_the_job(world) -> None:
    assert (world.all_reduce(np.full(100000, VALUE), "avg") == 1).all()


def test_all_calls_of_a_job_may_be_rounded():
    ranks = WorldPool(2, transport="tcp", compression="bf16")
    try:
        ranks.run(check_the_job)
    finally:
        ranks.close()
