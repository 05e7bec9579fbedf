"""How groups begin: which backend, what is kept, and what a failure says. Real processes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mlx_ranks import clean_environment, free_port, job_environment

PRELUDE = """
import logging, os, sys
import mlx.core as mx
import mccl.mlx
logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
"""


def start(code: str, environment: dict[str, str], *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *arguments, "-c", PRELUDE + code],
        env=clean_environment() | {"MCCL_TIMEOUT": "60"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The tests may run where Control-C is ignored, as behind a shell's `&`.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def finish(process: subprocess.Popen, status: int = 0) -> tuple[str, str]:
    """Its output and what it logged."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == status, output + errors
    return output, errors


def run(code: str, environment: dict[str, str] | None = None, status: int = 0) -> tuple[str, str]:
    return finish(start(code, environment or {}), status)


def ring_environments(folder: Path, size: int, lanes: int = 1) -> list[dict[str, str]]:
    hosts = [[f"127.0.0.{1 + lane}:{free_port()}" for lane in range(lanes)] for _ in range(size)]
    path = folder / "hosts.json"
    path.write_text(json.dumps(hosts))
    return [{"MLX_RANK": str(rank), "MLX_HOSTFILE": str(path)} for rank in range(size)]


def run_ranks(code: str, environments: list[dict[str, str]]) -> list[tuple[str, str]]:
    processes = [start(code, environment) for environment in environments]
    return [finish(process) for process in processes]


#: A line is one write: launchers pass on pieces of what ranks write.
SUM = """
total = mx.distributed.all_sum(mx.array(group.rank() + 1), group=group).item()
sys.stdout.write(f"{total} {group.size()}\\n")
"""


@pytest.mark.parametrize("backend", ["ring", "any"])
def test_a_ring_of_a_hostfile(tmp_path: Path, backend: str):
    code = f"group = mccl.mlx.init('{backend}', strict=True)\n{SUM}"
    for output, _ in run_ranks(code, ring_environments(tmp_path, 3)):
        assert output.split() == ["6", "3"]


def test_several_addresses_per_rank(tmp_path: Path):
    code = f"group = mccl.mlx.init('ring', strict=True)\n{SUM}"
    environments = ring_environments(tmp_path, 2, lanes=3)
    for environment in environments:
        environment |= {"MCCL_TRANSPORT": "tcp", "MCCL_LOG_LEVEL": "DEBUG"}
    for output, errors in run_ranks(code, environments):
        assert output.split() == ["3", "2"]
        assert "127.0.0.3" in errors


@pytest.mark.parametrize("backend", ["mccl", "any"])
def test_a_job_of_mccl_variables(backend: str):
    code = f"group = mccl.mlx.init('{backend}', strict=True)\n{SUM}"
    port = free_port()
    environments = [job_environment(rank, 2, port) for rank in range(2)]
    for output, _ in run_ranks(code, environments):
        assert output.split() == ["3", "2"]


@pytest.mark.parametrize("backend", ["mccl", "any"])
def test_a_job_of_torchrun(backend: str):
    code = f"group = mccl.mlx.init('{backend}', strict=True)\n{SUM}"
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


def test_numpy_and_mlx_share_one_job():
    code = """
import mccl.distributed as dist
import numpy as np
world = dist.init()
group = mccl.mlx.init("mccl", strict=True)
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
first = mccl.mlx.init("mccl", strict=True)
ring = mccl.mlx.init("ring", strict=True)
assert first is not ring and ring.size() == 2
assert mccl.mlx.init() is first and mccl.mlx.init("any", strict=True) is first
assert mccl.mlx.init("mccl") is first and mccl.mlx.init("ring") is ring
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


# --- alone --------------------------------------------------------------------------------------


def test_without_a_job_every_operation_is_a_no_op():
    code = """
import pytest
group = mccl.mlx.init()
assert (group.rank(), group.size()) == (0, 1)
assert mccl.mlx.init() is group
x = mx.arange(6).reshape(2, 3)
for call in ("all_sum", "all_max", "all_min", "all_gather", "sum_scatter"):
    assert mx.array_equal(getattr(mx.distributed, call)(x, group=group), x).item(), call
for call in ("all_sum", "all_mean", "broadcast", "reduce", "all_gather", "sum_scatter", "gather",
             "scatter", "all_to_all"):
    assert mx.array_equal(getattr(mccl.mlx, call)(x), x).item(), call
mccl.mlx.barrier()
grads = {"a": x, "b": [x]}
assert mccl.mlx.average_gradients(grads) is grads
with pytest.raises(ValueError):
    mx.distributed.send(x, 1, group=group)
with pytest.raises(ValueError):
    mx.distributed.recv((2,), mx.int32, 1, group=group)
with pytest.raises(RuntimeError, match="cannot be split"):
    group.split(0)
"""
    _, errors = run(code)
    # Nobody asked for a group, so it is no warning.
    assert "WARNING" not in errors
    assert "INFO this process is alone" in errors


def test_strict_without_a_job_says_what_each_backend_misses():
    code = "mccl.mlx.init(strict=True)"
    _, errors = run(code, status=1)
    last = errors.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: no group can be made: ring: neither MLX_RANK nor")
    for name in ("mccl: neither MCCL_RANK", "jaccl: ", "nccl: ", "mpi: "):
        assert name in last


@pytest.mark.parametrize(
    ("backend", "environment", "expected"),
    [
        ("ring", {}, "ring: neither MLX_RANK nor MLX_HOSTFILE is set"),
        ("mccl", {}, "mccl: neither MCCL_RANK nor MCCL_WORLD_SIZE is set"),
        ("jaccl", {}, "jaccl: this version of MCCL has no RDMA"),
        ("any", {"MLX_RANK": "0"}, "ring: MLX_RANK is set, but MLX_HOSTFILE is not"),
        ("any", {"MCCL_RANK": "0"}, "MCCL_WORLD_SIZE is not"),
        ("any", {"MLX_RANK": "0", "MLX_HOSTFILE": "/nowhere"}, "cannot be read"),
        ("any", {"MLX_IBV_DEVICES": "d.json", "MLX_RANK": "0"}, "MLX_IBV_DEVICES asks for it"),
        (
            "mccl",
            {"MCCL_RANK": "2", "MCCL_WORLD_SIZE": "2", "MCCL_ROOT": "127.0.0.1:1"},
            "rank 2, ",
        ),
    ],
)
def test_a_failed_init_explains_itself_and_strict_raises_later(
    backend: str, environment: dict, expected: str
):
    code = f"""
group = mccl.mlx.init("{backend}")
assert group.size() == 1
assert mccl.mlx.init("{backend}") is group
try:
    mccl.mlx.init("{backend}", strict=True)
except RuntimeError as error:
    print(error)
"""
    output, errors = run(code, environment)
    assert "WARNING this process is alone in its group" in errors
    assert expected in errors
    assert expected in output


def test_a_failed_init_does_not_hide_a_later_success(tmp_path: Path):
    [environment, other] = ring_environments(tmp_path, 2)
    code = f"""
assert mccl.mlx.init("ring").size() == 1
assert mccl.mlx.init().size() == 1
os.environ.update(ENVIRONMENT)
group = mccl.mlx.init("ring", strict=True)
assert mccl.mlx.init() is group
{SUM}
"""
    processes = [
        start(code.replace("ENVIRONMENT", repr(each)), {}) for each in (environment, other)
    ]
    for process in processes:
        output, _ = finish(process)
        assert output.split() == ["3", "2"]


def test_ranks_that_never_come_are_an_error_in_time(tmp_path: Path):
    [environment, _] = ring_environments(tmp_path, 2)
    code = """
assert mccl.mlx.init("ring").size() == 1  # waits in vain, once
assert mccl.mlx.init("ring").size() == 1
mccl.mlx.init("ring", strict=True)
"""
    environment["MCCL_CONNECT_TIMEOUT"] = "1"
    _, errors = run(code, environment, status=1)
    assert errors.count("WARNING") == 1, errors
    assert "RuntimeError: no group can be made: ring: " in errors


def test_control_c_ends_a_wait_for_other_ranks(tmp_path: Path):
    [environment, _] = ring_environments(tmp_path, 2)
    code = "print('waiting', flush=True)\nmccl.mlx.init('ring', strict=True)"
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
        _, errors = finish(start("mccl.mlx.init('ring', strict=True)", environment), 1)
        assert "has 1 ranks" in errors


def test_an_unknown_backend_is_an_error_even_if_not_strict():
    _, errors = run("mccl.mlx.init('gloo')", status=1)
    assert "ValueError: backend 'gloo': expected one of any, ring, mccl" in errors


def test_a_misspelt_setting_is_an_error_even_if_not_strict():
    _, errors = run("mccl.mlx.init()", {"MCCL_RNK": "0"}, status=1)
    assert "InvalidArgument: " in errors
    assert "MCCL_RANK" in errors


def test_is_available():
    code = "print([mccl.mlx.is_available(n) for n in ('any', 'ring', 'mccl', 'jaccl', 'nope')])"
    assert run(code)[0].strip() == "[True, True, True, False, False]"


# --- installed ----------------------------------------------------------------------------------

UNCHANGED = """
import sys
import mlx.core as mx
import mlx.nn as nn
world = mx.distributed.init(strict=True)
grads = nn.average_gradients({"w": mx.full((3,), float(world.rank()))})
total = mx.distributed.all_sum(mx.ones(2))
part = world.split(world.rank())
shard = mx.distributed.sum_scatter(mx.ones(world.size()))
print(world.size(), grads["w"].tolist(), total.tolist(), shard.tolist(), sys.argv[1:], __name__)
"""


def test_an_unchanged_program_runs_on_mccl(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(UNCHANGED)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "mccl.mlx", str(script), "--steps", "3"],
            env=clean_environment() | environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for environment in ring_environments(tmp_path, 2)
    ]
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert output.strip() == ("2 [0.5, 0.5, 0.5] [2.0, 2.0] [2.0] ['--steps', '3'] __main__")


def test_a_module_runs_on_mccl(tmp_path: Path):
    (tmp_path / "program.py").write_text(UNCHANGED)
    environments = ring_environments(tmp_path, 2)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "mccl.mlx", "-m", "program", "x"],
            env=clean_environment() | environment,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for environment in environments
    ]
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert output.startswith("2 [0.5, 0.5, 0.5]")


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--help"], 0, "python -m mccl.mlx"),
        ([], 2, "required"),
        (["/nowhere.py"], 2, "no such file: /nowhere.py"),
    ],
)
def test_the_command_line_explains_itself(arguments: list[str], status: int, expected: str):
    done = subprocess.run(
        [sys.executable, "-m", "mccl.mlx", *arguments],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=60,
    )
    assert done.returncode == status
    assert expected in done.stdout + done.stderr


def test_a_program_s_exit_code_is_kept(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text("import sys\nsys.exit(7)\n")
    done = subprocess.run([sys.executable, "-m", "mccl.mlx", str(script)], env=clean_environment())
    assert done.returncode == 7


def test_install_can_be_undone():
    code = """
import pytest
before = {name: getattr(mx.distributed, name) for name in dir(mx.distributed)}
mccl.mlx.install()
mccl.mlx.install()
assert mccl.mlx.is_installed()
assert mx.distributed.init() is mccl.mlx.init()
assert mx.distributed.init(False, "any") is mccl.mlx.init()
assert mx.distributed.is_available("ring") and not mx.distributed.is_available("nccl")
with pytest.raises(RuntimeError, match="no group can be made"):
    mx.distributed.init(strict=True, backend="nccl")
with pytest.raises(ValueError, match="all_gather_factory"):
    mx.distributed.init(all_gather_factory=print)
assert mx.distributed.all_sum(mx.ones(2)).tolist() == [1, 1]
assert "All reduce sum" in mx.distributed.all_sum.__doc__
mccl.mlx.uninstall()
mccl.mlx.uninstall()
assert not mccl.mlx.is_installed()
assert all(getattr(mx.distributed, name) is value for name, value in before.items())
"""
    run(code)


# --- what does not fit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("build.MLX = '0.31.0'", "was built for MLX 0.31.0"),
        ("build.PYTHON = '3.9'", "and Python 3.9, but this is MLX"),
        ("sys.modules['mccl._mlx_build'] = None", "installed without its MLX extension"),
        ("sys.modules['mlx.core'] = None", "needs MLX, which cannot be imported"),
        (
            "import mccl._mlx as shim\n"
            "def refuse(array): raise TypeError('incompatible function arguments')\n"
            "import types\n"
            "sys.modules['mccl._mlx'] = types.SimpleNamespace(accepts=refuse)",
            "with one that does not match it",
        ),
    ],
)
def test_a_mismatch_is_one_sentence_at_import(change: str, expected: str):
    code = (
        f"import sys\nimport mlx.core\nimport mccl._mlx_build as build\n{change}\nimport mccl.mlx"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=60,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: mccl"), done.stderr
    assert expected in last


def test_a_fork_leaves_the_parent_s_group_alone(tmp_path: Path):
    code = f"""
group = mccl.mlx.init("ring", strict=True)
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
{SUM}
"""
    for output, _ in run_ranks(code, ring_environments(tmp_path, 2)):
        assert output.split() == ["3", "2"]
