"""Jobs that mpirun starts, of Debian's Open MPI and MPICH."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from launching import PATIENCE, environment
from slurm_node import find

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Ranks are not bound to cores. A bound rank would wait for other processes on its core.
FLAGS = {
    "openmpi": ("--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"),
    "mpich": (),
}
LIBRARY = {"openmpi": "Open MPI", "mpich": "MPICH"}


def own_session(folder: str | Path) -> dict[str, str]:
    """Returns the variable that gives an mpirun of Open MPI a folder of its own.

    Otherwise all share one, which the first that ends may remove while another starts.
    """
    return {"OMPI_MCA_orte_tmpdir_base": str(folder)}


def run(*command: object, patience: int = 3 * PATIENCE, **variables: str):
    """Runs a job and returns it with its standard output and error in one text."""
    with tempfile.TemporaryDirectory(prefix="mccl-mpi-") as folder:
        return subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=patience,
            env=environment(**AS_ROOT, **own_session(folder), **variables),
        )


@pytest.fixture(name="mpi", params=["openmpi", "mpich"])
def each_mpi(request) -> str:
    find(f"mpirun.{request.param}")
    return request.param


#: For tests whose subject other tests cover with MPICH: its ranks spin while they wait.
MPICH_IS_LONG = pytest.mark.parametrize(
    "mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.long)], indirect=True
)


def mpirun(mpi: str, ranks: int, *words: object, **variables: str):
    settings = {"MCCL_BACKEND": "mpi", "MCCL_TIMEOUT": "60"} | variables
    return run(f"mpirun.{mpi}", *FLAGS[mpi], "-n", ranks, *words, **settings)


def python(mpi: str, ranks: int, code: str, *words: object, **variables: str) -> str:
    done = mpirun(mpi, ranks, sys.executable, "-c", code, *words, **variables)
    assert done.returncode == 0, done.stdout
    return done.stdout
