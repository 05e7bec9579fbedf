"""MLX programs under `mccl launch` and `mlx.launch`: with MCCL, and with MLX's own backends."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from free_port import free_port
from launching import environment, program, run

pytest.importorskip("mlx.core")

#: Each line is a single write, because launchers pass on partial lines as ranks write them.
HELLO = """
import os, sys
import mlx.core as mx
world = mx.distributed.init({arguments})
total = mx.distributed.all_sum(mx.ones(3))
sys.stdout.write(f"{{world.rank()}} {{world.size()}} {{total.tolist()}}\\n")
"""
BOTH = ["0 2 [2.0, 2.0, 2.0]", "1 2 [2.0, 2.0, 2.0]"]
ALONE = ["0 1 [1.0, 1.0, 1.0]"]


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    """A program that does not mention MCCL."""
    return write(tmp_path, "")


def write(folder: Path, arguments: str, before: str = "") -> Path:
    path = folder / "hello.py"
    path.write_text(before + HELLO.format(arguments=arguments))
    return path


def lines_of(*arguments: object, **options: object) -> list[str]:
    done = run("--no-prefix", "--python", sys.executable, *arguments, **options)
    return sorted(done.stdout.splitlines())


def test_a_plain_program_runs_on_mlx_own_ring(hello: Path):
    assert lines_of("-n", 2, hello) == BOTH
    assert lines_of("-n", 2, "--backend", "ring", hello) == BOTH


def test_a_plain_program_of_one_rank_is_alone_at_once(hello: Path):
    assert lines_of("-n", 1, "--timeout", 20, hello) == ALONE


def test_a_plain_program_with_jaccl_does_not_run_on_the_ring(tmp_path: Path):
    """MLX's jaccl is unavailable on this system, so MLX would otherwise choose the ring."""
    hosts = tmp_path / "hosts.json"
    entries = [
        {"ssh": "127.0.0.1", "ips": ["127.0.0.1"], "rdma": [None, "rdma0"]},
        {"ssh": "localhost", "ips": ["127.0.0.1"], "rdma": ["rdma0", None]},
    ]
    hosts.write_text(json.dumps({"backend": "jaccl", "hosts": entries}))
    script = tmp_path / "variables.py"
    script.write_text(
        "import os, sys\n"
        "names = ['MLX_HOSTFILE', 'MLX_IBV_DEVICES', 'MLX_JACCL_COORDINATOR', 'NCCL_HOST_IP']\n"
        "found = [name for name in names if name in os.environ]\n"
        "sys.stdout.write(f'{found}\\n')\n"
    )
    found = lines_of("--hostfile", hosts, script)
    assert found == ["['MLX_IBV_DEVICES', 'MLX_JACCL_COORDINATOR']"] * 2


@pytest.fixture
def on_mccl(tmp_path: Path) -> Path:
    """A program that fails unless it runs on MCCL."""
    return write(tmp_path, "strict=True, backend='mccl'")


#: Arguments after `mccl launch -n 2 --mlx`. P stands for Python, and S for the script.
COMMANDS = {
    "the script": "S",
    "python": "python S",
    "python with a flag": "python -u S",
    "a path of Python": "P S",
    "a path of Python with a flag": "P -u S",
    "a module": "-- -m hello",
    "a flag of Python": "-- -u S",
    "a shell's line": "-- sh -c 'exec P S'",
    "a program of Python's": "./program",
    "a script of the shell": "./job.sh",
}


#: The commands that make test starts. Each of the others differs little from one of these.
FEW_COMMANDS = {
    "the script",
    "a path of Python with a flag",
    "a module",
    "a shell's line",
    "a program of Python's",
}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=() if name in FEW_COMMANDS else pytest.mark.long)
        for name, command in COMMANDS.items()
    ],
    ids=COMMANDS,
)
def test_any_program_runs_on_mccl(on_mccl: Path, command: str):
    folder = on_mccl.parent
    for name, text in {
        "program": f"#!{sys.executable}\n{on_mccl.read_text()}",
        "job.sh": f"#!/bin/sh\nset -e\n{sys.executable} hello.py\n",
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    paths = {"P": sys.executable, "S": str(on_mccl)}
    line = re.sub(r"\b[PS]\b", lambda found: paths[found[0]], command)
    assert lines_of("-n", 2, "--mlx", *shlex.split(line), cwd=folder) == BOTH


def test_a_job_of_one_rank_runs_on_mccl(on_mccl: Path):
    assert lines_of("-n", 1, "--mlx", on_mccl) == ALONE


def test_a_verbose_job_tells_of_mccl(on_mccl: Path):
    words = ("-n", 2, "--python", sys.executable, "--mlx")
    told = "INFO  [mccl rank 0]"
    assert told in run(*words, "--verbose", on_mccl).stderr
    assert told in run(*words, "--env", "MLX_RING_VERBOSE=0", on_mccl).stderr
    assert told not in run(*words, on_mccl).stderr


@pytest.mark.long
def test_a_line_of_python_runs_on_mccl(on_mccl: Path):
    text = on_mccl.read_text()
    assert lines_of("-n", 2, "--mlx", "--", "python", "-c", text) == BOTH
    assert lines_of("-n", 2, "--mlx", "--", sys.executable, "-c", text) == BOTH


def test_mlx_does_not_run_on_mccl_unless_requested(on_mccl: Path):
    words = ("-n", 1, "--no-prefix", "--python", sys.executable, on_mccl)
    assert "backend" in run(*words, status=1).stderr


def test_a_word_that_is_no_switch_is_an_error(hello: Path):
    words = ("-n", 1, "--mlx", "--env", "MCCL_MLX=maybe", "--python", sys.executable, hello)
    assert "MCCL_MLX: expected true or false" in run(*words, status=1).stderr
    off = ("-n", 2, "--mlx", "--env", "MCCL_MLX=off", hello)
    assert lines_of(*off) == BOTH


def test_a_program_that_mlx_does_not_reach_is_a_warning(hello: Path):
    assert "--mlx took effect in no program on 127.0.0.1: " in run("-n", 2, "--mlx", "true").stderr
    assert run("-n", 2, "--mlx", "--python", sys.executable, hello).stderr == ""


def test_python_starts_without_cost_unless_mccl_is_requested():
    code = "import sys; print(sorted(name for name in sys.modules if 'mccl' in name))"
    words = [sys.executable, "-I", "-c", code]
    plain = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True)
    asked = environment(MCCL_MLX="1")
    hooked = subprocess.run(words, env=asked, capture_output=True, text=True, check=True)
    assert "'mccl_engine" not in plain.stdout
    assert "mccl_engine.mlx_hook" in hooked.stdout
    assert "'mccl'" not in hooked.stdout


def test_mccl_mlx_may_be_imported_first(tmp_path: Path):
    script = write(tmp_path, "strict=True, backend='mccl'", "import mccl.mlx\n")
    assert lines_of("-n", 2, "--mlx", script) == BOTH


def test_readme_s_line_needs_no_environment(hello: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("BUILD_FOLDER", raising=False)  # uses the installed program
    if not (Path(sys.executable).parent / "mccl").samefile(program()):
        pytest.skip("no program is installed beside this Python")
    bare = {"PATH": "/usr/bin:/bin"}
    for words in (
        ("--mlx", hello),
        ("--", "python", "-m", "mccl.mlx", hello),
        ("--", "python3", "-m", "mccl.mlx", hello),
    ):
        done = run("-n", 2, "--no-prefix", *words, env=bare)
        assert sorted(done.stdout.splitlines()) == BOTH


def mlx_launch(*arguments: object, **settings: str) -> subprocess.CompletedProcess[str]:
    script = "from mlx._distributed_utils.launch import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment(**settings),
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(("ranks", "expected"), [(1, ALONE), (2, BOTH)])
def test_mlx_s_own_launcher(tmp_path: Path, ranks: int, expected: list[str]):
    script = write(tmp_path, "strict=True, backend='ring'", "import mccl.mlx\nmccl.mlx.install()\n")
    port = ("--starting-port", free_port())
    done = mlx_launch("-n", ranks, *port, "--", sys.executable, script)
    assert sorted(done.stdout.splitlines()) == expected, done.stderr


def test_mlx_s_own_launcher_starts_ranks_on_mccl(on_mccl: Path):
    done = mlx_launch("-n", 2, "--", sys.executable, on_mccl, MCCL_MLX="1")
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    assert (done.returncode, sorted(lines)) == (0, BOTH), done.stderr
    failed = mlx_launch(
        "-n", 2, "--", sys.executable, "-c", "import sys; sys.exit(7)", MCCL_MLX="1"
    )
    assert failed.returncode == 7


@pytest.fixture
def mpirun(tmp_path: Path) -> dict[str, str]:
    """An environment in which `mpirun` is Open MPI's."""
    found = shutil.which("mpirun.openmpi")
    if found is None:
        pytest.skip("mpirun.openmpi is not installed")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mpirun").symlink_to(found)
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return environment() | as_root | {"PATH": f"{folder}:{os.environ['PATH']}"}


ARGUMENTS = ("--mpi-arg", "--oversubscribe --mca btl_tcp_if_include lo")


def test_a_plain_program_runs_on_mpi(hello: Path, mpirun: dict[str, str]):
    words = ("-n", 2, "--backend", "mpi", *ARGUMENTS, "--python", sys.executable, hello)
    assert sorted(run(*words, env=mpirun).stdout.splitlines()) == BOTH


def test_ranks_of_mpi_have_the_settings(mpirun: dict[str, str]):
    script = "echo $MCCL_LOG_LEVEL $MPI_LIBNAME $MLX_RANK ${#MCCL_JOB_KEY}"
    words = ("-n", 2, "--backend", "mpi", *ARGUMENTS, "--", "sh", "-c", script)
    done = run(*words, env=mpirun | {"MCCL_LOG_LEVEL": "INFO", "MLX_RANK": "7"})
    assert done.stdout.splitlines() == ["INFO libmpi.so.40 64"] * 2


def test_mpi_on_several_hosts_gets_the_address_of_rank_0(mpirun: dict[str, str]):
    done = run("--hosts", "a,b", "--backend", "mpi", "--dry-run", "true", env=mpirun)
    assert "-x MCCL_ROOT" in done.stdout
    done = run("--hosts", "a,b", "--backend", "mpi", "--print-env", "true", env=mpirun)
    assert "MCCL_ROOT=a:32321\n" in done.stdout
