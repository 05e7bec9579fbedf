"""A developer's first steps: the README's `pip install -e .`, then torchrun.

Needs the network, from which pip downloads the build requirements.
"""

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from environments import ROOT, WITHOUT_CUDA, Environment, readme_training, run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def network(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips the tests if the build requirements cannot be downloaded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folder = tmp_path_factory.mktemp("required")
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "0",
            "--timeout", "20", "--dest", folder, *project["build-system"]["requires"],
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    if done.returncode != 0:
        why = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        pytest.skip(f"pip reaches nothing: {why[-1] if why else done.stderr}")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, str]:
    """An environment that sees the running one's packages, with mccl installed; and pip's output.

    The build folder is kept, so that the next run compiles only what has changed.
    """
    made = Environment(tmp_path_factory.mktemp("editable") / "venv")
    made.link_all()
    said = run(
        sys.executable, "-m", "pip", "--python", made.python, "install", "-e", ROOT,
        f"--config-settings=build-dir={ROOT}/build/pip-editable", *WITHOUT_CUDA,
    )  # fmt: skip
    return made, said


def test_the_last_line_says_what_it_came_to(environment: tuple[Environment, str]):
    last = environment[1].strip().splitlines()[-1]
    with_torch = "torch" if find_spec("torch") else "without.torch"
    assert re.match(rf"Successfully installed mccl-engine-[\d.]+\+{with_torch}", last)


def test_python_files_are_read_where_they_stand(environment: tuple[Environment, str]):
    file = environment[0].run("import mccl; print(mccl.__file__)")
    assert Path(file) == ROOT / "python/mccl/__init__.py"


def test_torchrun_trains_on_two_ranks(environment: tuple[Environment, str], tmp_path: Path):
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    said = run(
        environment[0].python, "-m", "torch.distributed.run",
        "--standalone", "--nproc_per_node=2", readme_training(tmp_path),
    )  # fmt: skip
    assert len(re.findall(r"rank \d: loss [\d.]+", said)) == 2
