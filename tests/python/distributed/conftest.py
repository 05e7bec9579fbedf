from __future__ import annotations

import pytest

pytest.importorskip("numpy")
pytest.importorskip("ml_dtypes")

from world_pool import WorldPool


@pytest.fixture(
    scope="module", params=[2, 4, pytest.param(8, marks=pytest.mark.long)], ids="{} ranks".format
)
def pool(request):
    ranks = WorldPool(request.param)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def pair():
    ranks = WorldPool(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def four():
    ranks = WorldPool(4)
    yield ranks
    ranks.close()
