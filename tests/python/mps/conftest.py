"""Ranks whose "mps" device is a double of a Mac's GPU; see fake_mps/gpu.h."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[2] / os.environ.get("BUILD_FOLDER", "build/release")
sys.path[:0] = [str(HERE), str(HERE.parent / "torch")]

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips all tests of this folder if the double was not built."""
    if any((BUILD / "tests" / "python").glob("fake_mps.*.so")):
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip("no double of MPS: make build-tests builds it"))


def pool_with_gpus(shared: bool):
    """Returns ranks that use the double, with memory that is shared with the host or private."""
    from fake_device import start
    from rank_pool import RankPool

    class Pool(RankPool):
        def run(self, function, *args, deadline: float = 240.0, group: bool = True):
            return super().run(function, *args, deadline=deadline, group=group)

    return Pool(size=3, prepare=(start, (shared,)))


@pytest.fixture(scope="module", params=["shared", "private"])
def pool(request: pytest.FixtureRequest):
    ranks = pool_with_gpus(request.param == "shared")
    yield ranks
    ranks.close()
