from __future__ import annotations

import pytest

pytest.importorskip("torch")

from rank_pool import RankPool  # noqa: E402


@pytest.fixture(scope="module")
def pool():
    ranks = RankPool()
    yield ranks
    ranks.close()
