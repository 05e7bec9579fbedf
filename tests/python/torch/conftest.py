from __future__ import annotations

import pytest

pytest.importorskip("torch")

from rank_pool import RankPool


@pytest.fixture(scope="module")
def pool():
    ranks = RankPool()
    yield ranks
    ranks.close()
