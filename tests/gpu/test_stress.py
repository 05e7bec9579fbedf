"""Runs stress.py, random calls with random delays, on the `cuda` kernels."""

from __future__ import annotations

import pytest
import sharing
import stress
import torch

WAYS = [way for way in sharing.WAYS if way.startswith("cuda")]
SIZES = [2, 3] if sharing.ONE_GPU else [n for n in (2, 3, 4, 8) if n <= torch.cuda.device_count()]


@pytest.fixture(scope="module", params=[(way, size) for size in SIZES for way in WAYS], ids=str)
def ranks(request):
    from rank_pool import RankPool

    way, size = request.param
    pool = RankPool(size)
    pool.run(sharing.choose, way, group=False)
    yield pool
    pool.close()


@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "pooled"])
def test_random_calls_with_random_delays(ranks, pooled):
    calls = 300 if ranks.size == 2 else 100
    ranks.run(stress.check, calls, 17 + ranks.size, pooled, deadline=240)
