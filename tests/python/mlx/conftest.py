from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("mlx.core")
# The path of launching.py. It is appended last because folders there are named like packages.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from mlx_ranks import MlxRanks


@pytest.fixture(
    scope="module", params=[2, 4, pytest.param(8, marks=pytest.mark.long)], ids="{} ranks".format
)
def ranks(request):
    """One job of each size, whose processes have imported the modules in the file's IMPORTED."""
    imported = getattr(request.module, "IMPORTED", ())
    with MlxRanks(request.param, imported=imported) as processes:
        yield processes


@pytest.fixture(scope="module")
def two():
    with MlxRanks(2) as processes:
        yield processes


@pytest.fixture(scope="module")
def four():
    with MlxRanks(4) as processes:
        yield processes
