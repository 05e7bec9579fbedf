"""The scripts of examples/slurm, under a real Slurm of two nodes (slurm_node.py)."""

import sys
from pathlib import Path

import pytest
from launching import ROOT, program
from slurm_node import Slurm, made_for_a_module, run

SCRIPTS = ROOT / "examples/slurm"

# Each rank prints its line by one system call, so that the lines of two ranks do not mix.
TORCH = """
import os

import torch
import torch.distributed as dist

import mccl

dist.init_process_group("mccl")
x = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(x)
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()}: {x[0].item()}\\n".encode())
dist.destroy_process_group()
"""

MLX = """
import os

import mlx.core as mx

world = mx.distributed.init()
x = mx.distributed.all_sum(mx.ones(3) * (world.rank() + 1), group=world)
os.write(1, f"rank {world.rank()} of {world.size()}: {x[0].item()}\\n".encode())
"""


@pytest.fixture(scope="module")
def slurm():
    yield from made_for_a_module(nodes=2)


def batch(slurm: Slurm, folder: Path, tasks: int, script: str, *arguments: object) -> list[str]:
    """Runs a script with `tasks` tasks on each node, and returns the sorted lines of its ranks."""
    output = folder / "output"
    options = ("--wait", "-N", 2, "--ntasks-per-node", tasks, "--output", output, "--chdir", folder)
    sbatch = (*slurm.on(), "sbatch", *options, SCRIPTS / script, *arguments)
    run(*sbatch, PYTHON=sys.executable, **slurm.environment)
    return sorted(output.read_text().splitlines())


def ranks_of(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("rank ")]


def write(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


@pytest.mark.long
def test_torch_by_one_task_for_each_rank(slurm: Slurm, tmp_path: Path):
    pytest.importorskip("torch")
    lines = batch(slurm, tmp_path, 2, "torch.sbatch", write(tmp_path, TORCH))
    assert ranks_of(lines) == [f"rank {rank} of 4: 10.0" for rank in range(4)], lines


@pytest.mark.long
def test_torch_by_torchrun_on_each_node(slurm: Slurm, tmp_path: Path):
    pytest.importorskip("torch")
    lines = batch(slurm, tmp_path, 1, "torchrun.sbatch", 2, write(tmp_path, TORCH))
    assert ranks_of(lines) == [f"rank {rank} of 4: 10.0" for rank in range(4)], lines


def test_an_unchanged_program_of_mlx(slurm: Slurm, tmp_path: Path):
    pytest.importorskip("mlx.core")
    lines = batch(slurm, tmp_path, 1, "mlx.sbatch", write(tmp_path, MLX))
    assert ranks_of(lines) == [f"rank {rank} of 2: 3.0" for rank in range(2)], lines


def test_a_program_of_cxx(slurm: Slurm, tmp_path: Path):
    bench = ("bench", "all_reduce", "--no-bounds", "--sizes", "8", "--seconds", "0.01")
    lines = batch(slurm, tmp_path, 2, "cpp.sbatch", program(), *bench)
    assert "a job of 4 ranks" in "\n".join(lines)
