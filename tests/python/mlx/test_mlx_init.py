"""How groups begin: the backend, the meeting of ranks, and reuse of groups. Real processes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from free_port import free_port
from mlx_processes import PRELUDE, SUM, finish, ring_environments, run_ranks, start
from mlx_ranks import clean_environment, job_environment


@pytest.mark.parametrize("backend", ["ring", pytest.param("any", marks=pytest.mark.long)])
def test_a_ring_of_a_hostfile(tmp_path: Path, backend: str):
    code = f"group = mccl.mlx.init(backend='{backend}', strict=True)\n{SUM}"
    for output, _ in run_ranks(code, ring_environments(tmp_path, 3)):
        assert output.split() == ["6", "3"]


def test_several_addresses_per_rank(tmp_path: Path):
    code = f"group = mccl.mlx.init(True, 'ring')\n{SUM}"
    environments = ring_environments(tmp_path, 2, lanes=3)
    for environment in environments:
        environment |= {"MCCL_TRANSPORT": "tcp", "MCCL_LOG_LEVEL": "DEBUG"}
    for output, errors in run_ranks(code, environments):
        assert output.split() == ["3", "2"]
        assert "127.0.0.3" in errors


@pytest.mark.parametrize("backend", [pytest.param("mccl", marks=pytest.mark.long), "any"])
def test_a_job_of_mccl_variables(backend: str):
    code = f"group = mccl.mlx.init(backend='{backend}', strict=True)\n{SUM}"
    port = free_port()
    environments = [job_environment(rank, 2, port) for rank in range(2)]
    for output, _ in run_ranks(code, environments):
        assert output.split() == ["3", "2"]


@pytest.mark.parametrize("backend", ["mccl", pytest.param("any", marks=pytest.mark.long)])
def test_a_job_of_torchrun(backend: str):
    code = f"group = mccl.mlx.init(backend='{backend}', strict=True)\n{SUM}"
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    environments = [
        shared | {"RANK": str(rank), "LOCAL_RANK": str(rank), "MCCL_PORT_BASE": "0"}
        for rank in range(2)
    ]
    for output, _ in run_ranks(code, environments):
        assert output.split() == ["3", "2"]


@pytest.mark.parametrize("launcher", ["mpirun.openmpi", "mpirun.mpich"])
def test_a_job_of_mpirun(tmp_path: Path, launcher: str):
    if shutil.which(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    script = tmp_path / "job.py"
    script.write_text(f"{PRELUDE}group = mccl.mlx.init(strict=True)\n{SUM}")
    flags = ["--allow-run-as-root", "--oversubscribe"] if launcher == "mpirun.openmpi" else []
    done = subprocess.run(
        [launcher, *flags, "-n", "2", sys.executable, script],
        env=clean_environment() | {"MCCL_PORT_BASE": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["3 2", "3 2"]


@pytest.mark.parametrize("launcher", ["mpirun.openmpi", "mpirun.mpich"])
def test_mpirun_of_one_process_is_no_job_of_mpi(launcher: str):
    """MLX itself behaves in the same way."""
    if shutil.which(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    code = f"""{PRELUDE}
assert mccl.mlx.init(backend="mpi").size() == 1
try:
    mccl.mlx.init(strict=True, backend="mpi")
except RuntimeError as error:
    print(error)
"""
    flags = ["--allow-run-as-root"] if launcher == "mpirun.openmpi" else []
    done = subprocess.run(
        [launcher, *flags, "-n", "1", sys.executable, "-c", code],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "no group can be made: mpi: the launcher has started a single process" in done.stdout
    assert done.returncode == 0, done.stderr


#: The cases of MLX's documentation in which backends are named one after the other.
CASES = """
case = sys.argv[1]
if case == "1":
    first = mx.distributed.init(backend="mpi")
    assert mx.distributed.init() is first
elif case == "2":
    first = mx.distributed.init(backend="any")
    assert mx.distributed.init() is first
    second = mx.distributed.init(backend="mpi")
    assert second is not first and mx.distributed.init() is first
else:
    first = mx.distributed.init(backend="mpi")
    ring = mx.distributed.init(backend="ring")
    assert ring is not first and mx.distributed.init() is first
    mx.eval(mx.distributed.all_sum(mx.ones(3), group=ring))
group = mx.distributed.init()
"""


@pytest.mark.parametrize(
    "case", ["1", *(pytest.param(case, marks=pytest.mark.long) for case in "23")]
)
def test_the_cases_of_mlx_s_page_under_mpirun(tmp_path: Path, case: str):
    if shutil.which("mpirun.openmpi") is None:
        pytest.skip("mpirun.openmpi is not installed")
    ring_environments(tmp_path, 2)
    script = tmp_path / "job.py"
    # mpirun gives all ranks the same environment, so MLX_RANK is set from mpirun's own rank.
    script.write_text(f"""{PRELUDE}
if sys.argv[1] == "3":
    os.environ["MLX_RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
    os.environ["MLX_HOSTFILE"] = {str(tmp_path / "hosts.json")!r}
mccl.mlx.install()
{CASES}{SUM}""")
    mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    done = subprocess.run(
        [*mpirun, sys.executable, script, case],
        env=clean_environment() | {"MCCL_PORT_BASE": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["3 2", "3 2"]


def test_numpy_and_mlx_share_one_job():
    code = """
import mccl.distributed as dist
import numpy as np
world = dist.init()
group = mccl.mlx.init(True, "mccl")
assert (group.rank(), group.size()) == (world.rank, world.size)
for step in range(20):
    one = world.all_reduce(np.full(3, step))
    two = mx.distributed.all_sum(mx.full((3,), step), group=group)
    mx.eval(two)
    assert one.tolist() == two.tolist() == [2 * step] * 3
part = world.split(0)
print(mx.distributed.all_sum(mx.array(1), group=group).item())
"""
    port = free_port()
    for output, _ in run_ranks(code, [job_environment(rank, 2, port) for rank in range(2)]):
        assert output.split() == ["2"]


def test_the_first_success_is_what_any_returns(tmp_path: Path):
    code = """
first = mccl.mlx.init(True, "mccl")
ring = mccl.mlx.init(True, "ring")
assert first is not ring and ring.size() == 2
assert mccl.mlx.init() is first and mccl.mlx.init(True, "any") is first
assert mccl.mlx.init(backend="mccl") is first and mccl.mlx.init(backend="ring") is ring
assert mccl.mlx.init("ring") is ring and mccl.mlx.init("mccl", True) is first
one = mx.distributed.all_sum(mx.array(1), group=first)
two = mx.distributed.all_sum(mx.array(2), group=ring)
print(one.item(), two.item())
"""
    port = free_port()
    environments = [
        environment | job_environment(rank, 2, port)
        for rank, environment in enumerate(ring_environments(tmp_path, 2))
    ]
    for output, _ in run_ranks(code, environments):
        assert output.split() == ["2", "4"]


def test_a_named_success_is_the_default_from_then_on(tmp_path: Path):
    code = "ring = mccl.mlx.init('ring')\nassert mccl.mlx.init() is ring\nprint(ring.size())"
    for output, _ in run_ranks(code, ring_environments(tmp_path, 2)):
        assert output.split() == ["2"]


def jaccl_environments(folder: Path) -> list[dict[str, str]]:
    devices = folder / "devices.json"
    devices.write_text(json.dumps([[None, "rdma_en2"], ["rdma_en2", None]]))
    shared = {
        "MLX_JACCL_COORDINATOR": f"127.0.0.1:{free_port()}",
        "MLX_IBV_DEVICES": str(devices),
        "MCCL_PORT_BASE": "0",
    }
    return [shared | {"MLX_RANK": str(rank)} for rank in range(2)]


def nccl_environments(folder: Path) -> list[dict[str, str]]:
    shared = {
        "NCCL_HOST_IP": "127.0.0.1",
        "NCCL_PORT": str(free_port()),
        "MLX_WORLD_SIZE": "2",
        "MCCL_PORT_BASE": "0",
    }
    return [shared | {"MLX_RANK": str(rank)} for rank in range(2)]


@pytest.mark.parametrize("any_backend", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("backend", ["jaccl", "nccl"])
def test_ranks_meet_where_jaccl_or_nccl_would(tmp_path: Path, backend: str, any_backend: bool):
    environments = {"jaccl": jaccl_environments, "nccl": nccl_environments}[backend](tmp_path)
    name = "any" if any_backend else backend
    code = f"group = mccl.mlx.init(True, '{name}')\nmccl.mlx.init(True, '{backend}')\n{SUM}"
    for output, errors in run_ranks(code, environments):
        assert output.split() == ["3", "2"]
        # All ranks are on one host and share memory, so no warning about RDMA is due.
        slower = errors.count(f"WARNING {backend}: arrays are sent from host memory")
        on_gpu = mx.cuda.is_available()
        assert slower == (1 if backend == "nccl" and not on_gpu else 0)


def test_control_c_ends_a_wait_for_other_ranks(tmp_path: Path):
    [environment, _] = ring_environments(tmp_path, 2)
    code = "print('waiting', flush=True)\nmccl.mlx.init(True, 'ring')"
    process = start(code, environment)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors


def test_a_short_hostfile_is_an_error_on_every_rank(tmp_path: Path):
    environments = ring_environments(tmp_path, 2)
    environments.append(environments[0] | {"MLX_RANK": "2"})
    for environment in environments[:2]:
        environment["MLX_HOSTFILE"] = str(tmp_path / "short.json")
    (tmp_path / "short.json").write_text(json.dumps([["127.0.0.1:1"]]))
    environments = environments[1:]
    environments[1]["MLX_HOSTFILE"] = environments[0]["MLX_HOSTFILE"]
    for environment in environments:
        _, errors = finish(start("mccl.mlx.init(True, 'ring')", environment), 1)
        assert "has 1 ranks" in errors


def test_a_fork_leaves_the_parent_s_group_alone(tmp_path: Path):
    code = f"""
group = mccl.mlx.init(True, "ring")
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
{SUM}
"""
    for output, _ in run_ranks(code, ring_environments(tmp_path, 2)):
        assert output.split() == ["3", "2"]
