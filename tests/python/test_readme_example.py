"""The train.py of docs/pytorch.md runs unchanged under every launcher."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from free_port import free_port
from launching import PATIENCE, ROOT, environment, program
from slurm_node import Slurm, find, made_for_a_module, run

pytest.importorskip("torch")

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MCCL_PORT_BASE": "0"}
INFO = ONE_THREAD | {"MCCL_LOG_LEVEL": "INFO"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (ROOT / "docs/pytorch.md").read_text()
    (code,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if block.startswith("# train.py")
    )
    script = tmp_path_factory.mktemp("readme") / "train.py"
    script.write_text(code)
    return script


@pytest.fixture(scope="module")
def slurm():
    yield from made_for_a_module()


def check_training(done: str, ranks: int = 2) -> None:
    losses = dict(re.findall(r"rank (\d): loss ([\d.]+)", done))
    assert losses.keys() == {str(rank) for rank in range(ranks)}, done
    # The model can represent the function exactly. The loss is about 10 at the start.
    assert max(map(float, losses.values())) < 0.5, done


def test_the_example_trains_under_torchrun(example: Path):
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    check_training(run(*torchrun, "--nproc_per_node=2", example, **ONE_THREAD))


@pytest.mark.long
def test_the_example_trains_under_mccl_launch(example: Path):
    launch = (program(), "launch", "--python", sys.executable)
    check_training(run(*launch, "-n", 2, example, **ONE_THREAD))


@pytest.mark.long
def test_the_example_trains_under_open_mpi(example: Path):
    mpirun = (find("mpirun.openmpi"), "--oversubscribe", "-n", 2)
    check_training(run(*mpirun, sys.executable, example, **ONE_THREAD, **AS_ROOT))


@pytest.mark.long
def test_the_example_trains_under_mpich(example: Path):
    check_training(run(find("mpirun.mpich"), "-n", 2, sys.executable, example, **ONE_THREAD))


@pytest.mark.long
def test_the_example_trains_under_srun(example: Path, slurm: Slurm):
    done = run("srun", "-n", 2, sys.executable, example, **ONE_THREAD, **slurm.environment)
    check_training(done)


@pytest.mark.long
def test_the_example_trains_where_variables_of_mccl_tell_the_place(example: Path):
    root = f"127.0.0.1:{free_port()}"
    place = {"MCCL_WORLD_SIZE": "2", "MCCL_ROOT": root, "MCCL_JOB_KEY": "a key of the test"}
    other = subprocess.Popen(
        [sys.executable, example],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(MCCL_RANK="1", **place, **ONE_THREAD),
    )
    try:
        said = run(sys.executable, example, MCCL_RANK="0", **place, **ONE_THREAD)
        said += other.communicate(timeout=PATIENCE)[0]
    finally:
        other.kill()
    check_training(said)


@pytest.mark.long
def test_the_example_trains_by_the_calls_of_an_mpi_library(example: Path):
    mpi = {"MCCL_BACKEND": "mpi", **ONE_THREAD}
    check_training(run(find("mpirun.mpich"), "-n", 2, sys.executable, example, **mpi))


def test_the_script_of_a_batch_job_is_one_rank(example: Path, slurm: Slurm, tmp_path: Path):
    output = tmp_path / "out"
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {example}\n")
    run("sbatch", "--wait", "-n", 2, "-o", output, script, **INFO, **slurm.environment)
    said = output.read_text()
    check_training(said, ranks=1)
    assert "a batch job of 2 tasks" in said and "start the program with srun" in said
    assert "from Slurm (a batch script)" in said
