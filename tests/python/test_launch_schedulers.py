"""Ranks started by other launchers find their place, and `mccl launch --slurm` finds its hosts.

Slurm is real; slurm_node.py sets it up for the tests.
"""

import sys
from pathlib import Path

import pytest
from launching import program
from slurm_node import Slurm, find, made_for_a_module, run

BENCH = ("bench", "all_reduce", "--no-bounds", "--sizes", "8,64K", "--seconds", "0.01")


def test_under_open_mpi():
    mpirun = (find("mpirun.openmpi"), "--oversubscribe", "-n", 3)
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    assert "a job of 3 ranks" in run(*mpirun, program(), *BENCH, **as_root)


def test_under_mpich():
    assert "a job of 3 ranks" in run(find("mpirun.mpich"), "-n", 3, program(), *BENCH)


@pytest.mark.long
def test_under_torchrun():
    pytest.importorskip("torch")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone")
    assert "a job of 2 ranks" in run(*torchrun, "--nproc_per_node=2", program(), *BENCH)


@pytest.fixture(scope="module")
def slurm():
    yield from made_for_a_module()


def test_under_srun(slurm: Slurm):
    done = run("srun", "-n", 4, program(), *BENCH, **slurm.environment)
    assert "a job of 4 ranks" in done


def test_two_steps_of_an_allocation_do_not_meet(slurm: Slurm):
    both = f"srun --overlap -n 2 {program()} {' '.join(BENCH)} & " * 2 + "wait"
    done = run("salloc", "-n", 4, "sh", "-c", both, MCCL_PORT_BASE="0", **slurm.environment)
    assert done.count("a job of 2 ranks") == 2


def test_a_launch_inside_an_allocation_takes_its_hosts_and_tasks(slurm: Slurm):
    launch = (program(), "launch", "--slurm", program(), *BENCH)
    done = run("salloc", "-n", 4, *launch, **slurm.environment)
    assert "a job of 4 ranks" in done


def test_the_script_of_a_batch_job_is_no_rank(slurm: Slurm, tmp_path: Path):
    output = tmp_path / "out"
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{program()} {' '.join(BENCH)} --ranks 2\n")
    run("sbatch", "--wait", "-n", 4, "-o", output, script, **slurm.environment)
    assert "2 ranks" in output.read_text()
