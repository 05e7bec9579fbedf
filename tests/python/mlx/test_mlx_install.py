"""Unchanged programs on MCCL, and errors for an MLX that does not match."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mlx_processes import ring_environments, run
from mlx_ranks import clean_environment

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
assert mx.distributed.is_available("ring") and not mx.distributed.is_available("gloo")
with pytest.raises(RuntimeError, match="no group can be made"):
    mx.distributed.init(strict=True, backend="mpi")
with pytest.raises(ValueError, match="all_gather_factory works only with backend='jaccl'"):
    mx.distributed.init(all_gather_factory=print)
with pytest.raises(TypeError, match="all_gather_factory: expected a function.*found int"):
    mx.distributed.init(backend="jaccl", all_gather_factory=7)
assert mx.distributed.init(backend="jaccl", all_gather_factory=print).size() == 1
assert mx.distributed.all_sum(mx.ones(2)).tolist() == [1, 1]
assert "All reduce sum" in mx.distributed.all_sum.__doc__
mccl.mlx.uninstall()
mccl.mlx.uninstall()
assert not mccl.mlx.is_installed()
assert all(getattr(mx.distributed, name) is value for name, value in before.items())
"""
    run(code)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("build.MLX = ['0.31.0']", "was built for MLX 0.31.0 and"),
        ("build.PYTHON = '3.9'", "and Python 3.9, but this is MLX"),
        ("build.MLX = []", "installed without its MLX extension"),
        ("sys.modules['mlx.core'] = None", "needs MLX, which cannot be imported"),
        (
            "from mccl import extensions\n"
            "def refuse(array): raise TypeError('incompatible function arguments')\n"
            "import types\n"
            "name = extensions.module_for('mlx', mlx.core.__version__)\n"
            "sys.modules[name] = types.SimpleNamespace(accepts=refuse)",
            "with an incompatible one",
        ),
    ],
)
def test_a_mismatch_is_one_sentence_at_import(change: str, expected: str):
    code = (
        f"import sys\nimport mlx.core\nimport mccl._built_for as build\n{change}\nimport mccl.mlx"
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
