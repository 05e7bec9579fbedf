"""Tests that need GPUs. `make test-gpu` runs them; elsewhere they say that they cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "torch"))

torch = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip("this machine has no CUDA GPU that torch can use", allow_module_level=True)


@pytest.fixture(scope="session")
def pool():
    """Four ranks, which share the GPUs there are."""
    from rank_pool import RankPool

    ranks = RankPool()
    yield ranks
    ranks.close()
