"""`backend="jaccl"` joins the job that MLX's variables describe, without MLX."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_distributed_processes import finish, run, start, well
from world_pool import free_address

MESH = [[None, "rdma_en2"], ["rdma_en2", None]]
LINE = [[None, "a", None], ["a", None, "b"], [None, "b", None]]

SUM = """
    import numpy as np
    world = dist.init(backend="jaccl")
    assert dist.init(backend="jaccl") is world and dist.init() is world
    print(world.size, world.all_reduce(np.arange(3.0) + world.rank))
"""


def variables(folder: Path, table: object = MESH) -> dict[str, str]:
    path = folder / "devices.json"
    path.write_text(json.dumps(table))
    return {"MLX_JACCL_COORDINATOR": free_address(), "MLX_IBV_DEVICES": str(path)}


@pytest.mark.parametrize("ring", ["", "1"])
def test_ranks_meet_by_mlx_s_variables(tmp_path: Path, ring: str):
    shared = variables(tmp_path) | {"MLX_JACCL_RING": ring}
    ranks = [start(SUM, MLX_RANK=str(rank), **shared) for rank in range(2)]
    assert well([finish(rank) for rank in ranks]) == ["2 [1. 3. 5.]\n"] * 2


def test_ranks_meet_by_mccl_s_twins(tmp_path: Path):
    told = variables(tmp_path)
    shared = {
        "MCCL_ROOT": told["MLX_JACCL_COORDINATOR"],
        "MCCL_RDMA_DEVICE": told["MLX_IBV_DEVICES"],
    }
    ranks = [start(SUM, MCCL_RANK=str(rank), **shared) for rank in range(2)]
    assert well([finish(rank) for rank in ranks]) == ["2 [1. 3. 5.]\n"] * 2


def test_what_is_given_goes_before_the_variables(tmp_path: Path):
    told = variables(tmp_path)
    code = """
        print(dist.init(backend="jaccl", rank={rank}).rank)
    """
    ranks = [start(code.format(rank=rank), MLX_RANK=str(1 - rank), **told) for rank in range(2)]
    assert well([finish(rank) for rank in ranks]) == ["0\n", "1\n"]


def test_without_the_variables_it_is_an_error():
    status, _, errors = run("dist.init(backend='jaccl')")
    assert status != 0
    assert "InvalidArgument: init: jaccl: neither MLX_JACCL_COORDINATOR nor" in errors


def test_a_broken_ring_is_drawn(tmp_path: Path):
    told = variables(tmp_path, LINE)
    status, _, errors = run("dist.init(backend='jaccl')", MLX_RANK="0", MLX_JACCL_RING="1", **told)
    assert status != 0
    assert "no device joins ranks 0 and 2" in errors
    assert "  rank 0  .        a     MISSING" in errors


def test_another_backend_is_the_setting(tmp_path: Path):
    status, _, errors = run("dist.init(backend='jacl')")
    assert status != 0
    assert "InvalidArgument" in errors
    assert "backend" in errors
    assert well([run("print(dist.init(backend='native').size)")]) == ["1\n"]
