"""The mpi backend with Debian's Open MPI and MPICH: every binding, `mccl launch` and srun.

mpirun starts the conformance suite of groups as a program. The native engine passes the same suite
with threads of one process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import BUILD, ROOT, environment, program
from mpi_jobs import LIBRARY, MPICH_IS_LONG, each_mpi, mpirun, python, run  # noqa: F401
from slurm_node import Slurm, find, made_for_a_module


def conformance() -> Path:
    path = BUILD / "tests" / "mccl_group_conformance"
    if not path.is_file():
        pytest.skip(f"{path} is not built")
    return path


#: MPICH's ranks spin while they wait, so jobs with many ranks take long.
SIZES = [
    1,
    2,
    *(pytest.param(n, marks=pytest.mark.long) for n in (3, 4)),
    *(pytest.param(n, marks=pytest.mark.campaign) for n in (5, 6, 7, 8)),
]


@pytest.mark.parametrize("ranks", SIZES)
def test_groups_do_what_every_backend_s_must(mpi: str, ranks: int):
    done = mpirun(mpi, ranks, conformance())
    assert done.returncode == 0, done.stdout
    assert "PASSED" in done.stdout
    assert "FAILED" not in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("most", [1000])
def test_calls_that_are_too_long_for_an_int_go_in_pieces(mpi: str, most: int):
    checks = "Collectives.*:Messages.*:*EveryType*"
    done = mpirun(mpi, 3, conformance(), f"--gtest_filter={checks}", most)
    assert done.returncode == 0, done.stdout
    assert "PASSED" in done.stdout


@pytest.mark.long
def test_the_suite_holds_on_the_native_engine_under_mpirun_too(mpi: str):
    done = mpirun(mpi, 3, conformance(), MCCL_BACKEND="native", MCCL_PORT_BASE="0")
    assert done.returncode == 0, done.stdout


ANY_AFTER_NAMED = """
import numpy as np
import mccl.distributed as dist
world = dist.init(backend="mpi")
if world.rank == 0:
    named, free, last = np.zeros(3), np.zeros(3), np.zeros(3)
    first = world.recv(named, 2, tag=5, wait=False)
    second = world.recv(free, None, tag=5, wait=False)
    third = world.recv(last, 2, tag=5, wait=False)
    second.wait(timeout=30)
    world.send(np.ones(1), 2)
    first.wait()
    third.wait()
    print("received", second.source, free[0], named[0], last[0], flush=True)
elif world.rank == 1:
    world.send(np.full(3, 1.0), 0, tag=5)
else:
    world.recv(np.zeros(1), 0)
    world.send(np.full(3, 2.0), 0, tag=5)
    world.send(np.full(3, 3.0), 0, tag=5)
"""


@MPICH_IS_LONG
def test_a_receive_from_any_rank_does_not_wait_for_an_earlier_one_from_a_certain_rank(mpi: str):
    assert "received 1 1.0 2.0 3.0" in python(mpi, 3, ANY_AFTER_NAMED)


@MPICH_IS_LONG
def test_a_required_key_is_asked_for(mpi: str):
    job = (sys.executable, "-c", "import mccl.distributed as dist; dist.init(backend='mpi')")
    done = mpirun(mpi, 2, *job, MCCL_REQUIRE_KEY="1")
    assert done.returncode != 0
    assert "MCCL_REQUIRE_KEY is 1 and MCCL_JOB_KEY is not set" in done.stdout, done.stdout
    done = mpirun(mpi, 2, *job, MCCL_REQUIRE_KEY="1", MCCL_JOB_KEY="0123456789" * 4)
    assert done.returncode == 0, done.stdout


GRANTS_LESS = """
#include <mpi.h>
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  (void)required;
  return PMPI_Init_thread(argc, argv, LEVEL, provided);
}
"""


@pytest.mark.long
@pytest.mark.parametrize("level", ["MPI_THREAD_SERIALIZED", "MPI_THREAD_FUNNELED"])
def test_a_library_that_grants_less_to_threads(mpi: str, level: str, tmp_path: Path):
    compiler = find(f"mpicc.{mpi}")
    source = tmp_path / "less.c"
    source.write_text(GRANTS_LESS)
    library = tmp_path / "less.so"
    built = run(compiler, "-shared", "-fPIC", f"-DLEVEL={level}", source, "-o", library)
    if built.returncode != 0:
        pytest.skip("the headers of this MPI are not installed")
    done = mpirun(mpi, 2, conformance(), MPI_LIBNAME=str(library), MCCL_LOG_LEVEL="INFO")
    assert done.returncode == 0, done.stdout
    assert f"{level}, initialised by MCCL" in done.stdout


NUMPY = """
import numpy as np
import mccl.distributed as dist
world = dist.init(backend="mpi")
small = world.all_reduce(np.full(4, world.rank + 1))
large = world.all_reduce(np.full(1_000_000, world.rank + 1.0))
rows = world.all_gather(np.array([world.rank]))
assert small[0] == large[-1] == sum(range(1, world.size + 1))
assert [int(row) for row in np.ravel(rows)] == list(range(world.size))
print(f"rank {world.rank} of {world.size}\\n", end="", flush=True)
"""


def test_numpy_and_which_library_it_is(mpi: str):
    said = python(mpi, 3, NUMPY, MCCL_LOG_LEVEL="INFO")
    assert all(f"rank {rank} of 3" in said for rank in range(3))
    assert f"MPI: {LIBRARY[mpi]} " in said
    assert "MPI_THREAD_MULTIPLE, initialised by MCCL" in said


MLX = """
import mlx.core as mx
import mlx.nn as nn
import mccl.mlx
group = mccl.mlx.init(True, "mpi")
tree = {"weight": mx.full((30, 3), group.rank() + 1.0), "bias": mx.full((5,), 2.0)}
mean = nn.average_gradients(tree, group=group)
half = group.split(group.rank() % 2)
assert mean["weight"][0, 0].item() == (group.size() + 1) / 2 and mean["bias"][0].item() == 2
assert mx.distributed.all_sum(mx.ones(3), group=half)[0].item() == half.size()
print("fine\\n", end="", flush=True)
"""


@MPICH_IS_LONG
def test_mlx(mpi: str):
    pytest.importorskip("mlx.core")
    assert python(mpi, 4, MLX).count("fine") == 4


#: Prints whether libmpi is loaded, which shows whether MPI carries out the operations.
MLX_BY_NAME = """
from pathlib import Path
import mlx.core as mx
import mccl.mlx
{group}
total = mx.distributed.all_sum(mx.array(1), group=group).item()
assert total == group.size() == 2
maps = Path("/proc/self/maps").read_text()
print("mapped\\n" if "libmpi" in maps else "absent\\n", end="", flush=True)
"""


@MPICH_IS_LONG
def test_mlx_that_names_mpi_calls_it(mpi: str):
    pytest.importorskip("mlx.core")
    code = MLX_BY_NAME.format(group='group = mccl.mlx.init(backend="mpi")')
    assert python(mpi, 2, code, MCCL_BACKEND="auto").count("mapped") == 2


@MPICH_IS_LONG
def test_an_unchanged_mlx_program_that_names_mpi_calls_it(mpi: str, tmp_path: Path):
    pytest.importorskip("mlx.core")
    script = tmp_path / "program.py"
    script.write_text(MLX_BY_NAME.format(group='group = mx.distributed.init(backend="mpi")'))
    words = (sys.executable, "-m", "mccl.mlx", script)
    done = mpirun(mpi, 2, *words, MCCL_BACKEND="auto")
    assert done.stdout.count("mapped") == 2, done.stdout


MLX_TOO_LATE = """
import mlx.core as mx
import mccl.mlx
for name in ("mccl", "mpi"):
    group = mccl.mlx.init(True, name)
    assert mx.distributed.all_sum(mx.array(1), group=group).item() == 2
"""


@MPICH_IS_LONG
def test_naming_mpi_after_another_backend_warns(mpi: str):
    pytest.importorskip("mlx.core")
    said = python(mpi, 2, MLX_TOO_LATE, MCCL_BACKEND="auto", MCCL_PORT_BASE="0")
    assert said.count("with another backend than mpi, and can join only once: the group uses") == 2


def at_the_front_of_the_path(mpi: str, folder: Path) -> str:
    """Returns a PATH on which `mpirun` is the one of this MPI."""
    script = folder / "mpirun"
    script.write_text(f'#!/bin/sh\nexec {find(f"mpirun.{mpi}")} "$@"\n')
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.long
def test_torch_trains_under_mccl_launch(mpi: str, tmp_path: Path):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    launch = (program(), "launch", "-n", 2, "--backend", "mpi", "--python", sys.executable)
    path = at_the_front_of_the_path(mpi, tmp_path)
    digits = (ROOT / "examples/ddp_digits.py", "--epochs", 3)
    done = run(*launch, *digits, PATH=path, MCCL_LOG_LEVEL="INFO")
    assert "bit-identical" in done.stdout, done.stdout
    assert f"MPI: {LIBRARY[mpi]} " in done.stdout


def test_arguments_of_mccl_launch_reach_mpirun(mpi: str, tmp_path: Path):
    path = at_the_front_of_the_path(mpi, tmp_path)
    folder = "--wdir" if mpi == "openmpi" else "-wdir"
    launch = (program(), "launch", "-n", 2, "--backend", "mpi", "--mpi-arg", folder)
    done = run(*launch, "--mpi-arg", tmp_path, "--env", "GREETING=good day", "--", "sh", "-c",
               'echo "$GREETING $RANK of $WORLD_SIZE in $PWD"', PATH=path)  # fmt: skip
    assert done.returncode == 0, done.stdout
    for rank in range(2):
        assert f"good day {rank} of 2 in {tmp_path.resolve()}" in done.stdout


@MPICH_IS_LONG
def test_the_mccl_program(mpi: str):
    bench = ("bench", "all", "--no-bounds", "--sizes", "8,64K,2M", "--seconds", "0.01")
    done = mpirun(mpi, 2, program(), *bench)
    assert done.returncode == 0, done.stdout
    assert "a job of 2 ranks" in done.stdout


WITH_MPI4PY = """
import sys
import numpy as np
if sys.argv[1] == "first":
    from mpi4py import MPI
import mccl.distributed as dist
world = dist.init(backend="mpi")
from mpi4py import MPI
for step in range(100):
    ours = world.all_reduce(np.full(1000, world.rank + 1.0))
    theirs = MPI.COMM_WORLD.allreduce(world.rank + 1)
    assert ours[0] == theirs == sum(range(1, world.size + 1))
dist.shutdown()
assert not MPI.Is_finalized()
assert MPI.COMM_WORLD.allreduce(1) == world.size
print("fine\\n", end="", flush=True)
"""


@pytest.mark.parametrize("order", ["first", pytest.param("last", marks=pytest.mark.long)])
def test_beside_mpi4py(mpi: str, order: str, tmp_path: Path):
    pytest.importorskip("mpi4py")
    variables = {"MPI4PY_MPIABI": mpi}
    if mpi == "mpich":  # Debian gives MPICH's library another name
        (tmp_path / "libmpi.so.12").symlink_to("/usr/lib/x86_64-linux-gnu/libmpich.so.12")
        variables["LD_LIBRARY_PATH"] = str(tmp_path)
    assert python(mpi, 2, WITH_MPI4PY, order, **variables).count("fine") == 2


ENDS_MPI = """
import numpy as np
from mpi4py import MPI
import mccl.distributed as dist
world = dist.init(backend="mpi")
world.barrier()
MPI.Finalize()
try:
    world.all_reduce(np.ones(3))
except dist.Error as error:
    print(f"failed: {error}\\n", end="", flush=True)
"""


def test_a_program_that_ends_mpi_before_mccl():
    pytest.importorskip("mpi4py")
    find("mpirun.openmpi")
    said = python("openmpi", 2, ENDS_MPI)
    assert said.count("the program has called MPI_Finalize, after which MPI cannot be called") == 2


# Bad input. Each error is one clear sentence.

REFUSED = """
import mccl.distributed as dist
try:
    dist.init(backend="mpi")
except dist.InvalidArgument as error:
    print(f"refused: {error}\\n", end="", flush=True)
"""


@MPICH_IS_LONG
def test_no_such_library(mpi: str):
    said = python(mpi, 1, REFUSED, MPI_LIBNAME="libnothing.so")
    assert "refused: cannot load the MPI library that MPI_LIBNAME names" in said


@MPICH_IS_LONG
def test_mlx_s_name_for_the_library_does_too(mpi: str):
    said = python(mpi, 1, REFUSED, MLX_MPI_LIBNAME="libnothing.so")
    assert "refused: cannot load the MPI library that MLX_MPI_LIBNAME names" in said


@MPICH_IS_LONG
def test_a_library_that_is_no_mpi(mpi: str):
    said = python(mpi, 1, REFUSED, MPI_LIBNAME="libz.so.1")
    assert "lacks MPI_Get_library_version, which MCCL needs" in said


@MPICH_IS_LONG
def test_the_library_of_another_launcher_is_an_error_that_names_both(mpi: str):
    other = {"openmpi": "libmpich.so.12", "mpich": "libmpi.so.40"}[mpi]
    said = python(mpi, 2, REFUSED, MPI_LIBNAME=other)
    assert said.count("refused: the MPI library is ") == 2
    assert "Open MPI" in said
    assert "MPICH" in said
    assert f"{LIBRARY[mpi]}'s mpirun has started this process" in said


def test_ranks_of_two_implementations(mpi: str):
    """The rank with the wrong library fails before MPI waits for ranks that never arrive."""
    other = {"openmpi": "libmpich.so.12", "mpich": "libmpi.so.40"}[mpi]
    variable = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}[mpi]
    code = f"import os\nif os.environ['{variable}'] == '1': os.environ['MPI_LIBNAME'] = '{other}'\n"
    code += "import mccl.distributed as d; d.init()"
    done = mpirun(mpi, 2, sys.executable, "-c", code, MCCL_CONNECT_TIMEOUT="5")
    assert done.returncode != 0
    assert "InvalidArgument: the MPI library is " in done.stdout
    if mpi == "mpich":  # MPICH's launcher leaves the other rank waiting
        assert "has not initialised after 5 s" in done.stdout


def test_a_job_that_mpi_has_not_started():
    find("mpirun.openmpi")
    code = "import mccl.distributed as d; d.init(backend='mpi', rank=0, size=2)"
    done = run(sys.executable, "-c", code)
    assert done.returncode != 0
    assert "this job has 2 ranks, but the MPI job has 1" in done.stdout


@pytest.mark.parametrize(
    "level",
    [
        *(pytest.param(level, marks=pytest.mark.long) for level in ("single", "funneled")),
        "serialized",
    ],
)
def test_a_thread_level_that_is_too_low(level: str):
    pytest.importorskip("mpi4py")
    find("mpirun.openmpi")
    code = f"import mpi4py\nmpi4py.rc.thread_level = '{level}'\nfrom mpi4py import MPI\n{REFUSED}"
    assert "refused: the program has initialised MPI with MPI_THREAD_" in python("openmpi", 1, code)


def test_mpi_that_is_finalised_already():
    pytest.importorskip("mpi4py")
    find("mpirun.openmpi")
    code = f"from mpi4py import MPI\nMPI.Finalize()\n{REFUSED}"
    assert "refused: MPI has been finalised in this process" in python("openmpi", 1, code)


@MPICH_IS_LONG
def test_children_by_fork_are_refused(mpi: str):
    code = """
import os
import numpy as np
import mccl.distributed as dist
world = dist.init(backend="mpi")
child = os.fork()
if child == 0:
    try:
        world.all_reduce(np.ones(3))
    except dist.Error as error:
        print(f"failed: {error}\\n", end="", flush=True)
    try:
        dist.init(backend="mpi")
    except dist.InvalidArgument as error:
        print(f"refused: {error}\\n", end="", flush=True)
    os._exit(0)
os.waitpid(child, 0)
assert world.all_reduce(np.ones(3))[0] == world.size
"""
    said = python(mpi, 2, code)
    assert "refused: this process is a fork() child" in said
    assert "this process is a fork() child of a process that uses MPI" in said


# Jobs under Slurm.


@pytest.fixture(scope="module")
def slurm():
    yield from made_for_a_module()


@pytest.mark.parametrize(("mpi", "speaks"), [("openmpi", "pmix"), ("mpich", "pmi2")])
def test_under_srun(slurm: Slurm, mpi: str, speaks: str):
    find(f"mpirun.{mpi}")
    listed = subprocess.run(
        ["srun", "--mpi=list"], capture_output=True, text=True,
        env=environment(**slurm.environment),
    )  # fmt: skip
    if speaks not in listed.stdout + listed.stderr:
        pytest.skip(f"this Slurm does not speak {speaks}")
    srun = ("srun", f"--mpi={speaks}", "-n", 4, sys.executable, "-c", NUMPY)
    done = run(*srun, MCCL_LOG_LEVEL="INFO", **slurm.environment)
    if "can not load PMIx library" in done.stdout:
        pytest.skip("this Slurm speaks pmix, but its library is not installed (libpmix-dev)")
    assert done.returncode == 0, done.stdout
    assert all(f"rank {rank} of 4" in done.stdout for rank in range(4))
    assert f"MPI: {LIBRARY[mpi]} " in done.stdout


def test_srun_that_speaks_no_mpi(slurm: Slurm):
    find("mpirun.openmpi")
    srun = ("srun", "--mpi=none", "-n", 2, sys.executable, "-c", REFUSED)
    done = run(*srun, **slurm.environment)
    assert "refused: srun has started 2 ranks without MPI support" in done.stdout, done.stdout
