"""The wheel of `make wheels`, in a clean environment for each torch for which it is.

WHEEL is its path. Needs the network, and several gigabytes for each torch.
"""

import ast
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from environments import run

pytestmark = pytest.mark.long

WHEEL = Path(os.environ.get("WHEEL", "no wheel"))
JOB = Path(__file__).parent / "sum_ranks.py"


def built_for(name: str) -> list[str]:
    """Returns the versions of a framework for which the wheel has extensions."""
    if not WHEEL.is_file():
        return []
    text = zipfile.ZipFile(WHEEL).read("mccl/_built_for.py").decode()
    words = ast.literal_eval(re.search(rf'^{name} = (".*")\.split\(\)$', text, re.M)[1]).split()
    return [word.split("+")[0] for word in words]


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def jobs(folder: Path, *requirements: str) -> str:
    """Installs the wheel and packages into a new environment, and runs a job of each framework."""
    run(sys.executable, "-m", "venv", folder)
    # Fails if something would have to be compiled.
    run(
        folder / "bin/pip", "install", "--disable-pip-version-check", "--only-binary=:all:",
        WHEEL, "numpy", "ml_dtypes", *requirements,
    )  # fmt: skip
    words = [re.split("=", each)[0] for each in requirements if not each.startswith("mlx-")]
    outputs = []
    for framework in ["numpy", *words]:
        launch = ("launch", "-n", 2, "--no-prefix", JOB, framework)
        outputs.append(run("env", "PATH=/usr/bin:/bin", folder / "bin/mccl", *launch))
    shutil.rmtree(folder)  # It has several gigabytes.
    return "".join(outputs)


@pytest.mark.parametrize("torch", built_for("TORCH"))
def test_jobs_run_with_each_torch(torch: str, tmp_path: Path):
    (mlx, *_) = built_for("MLX")
    said = jobs(tmp_path / "venv", f"torch=={torch}", f"mlx=={mlx}", f"mlx-cpu=={mlx}")
    for framework, version in (
        ("numpy", r"[\d.]+"),
        ("torch", re.escape(minor(torch))),
        ("mlx", mlx),
    ):
        for rank in range(2):
            row = rf"^{framework} {version}\S*: rank {rank} of 2: \[3\.0, 3\.0, 3\.0\]$"
            assert re.search(row, said, re.M), said


@pytest.mark.parametrize("mlx", built_for("MLX")[1:])
def test_jobs_run_with_each_mlx(mlx: str, tmp_path: Path):
    said = jobs(tmp_path / "venv", f"mlx=={mlx}", f"mlx-cpu=={mlx}")
    assert said.count(f"mlx {mlx}: rank ") == 2, said


def test_a_wheel_is_given():
    if not WHEEL.is_file():
        pytest.skip("WHEEL names no wheel: run make wheels test-wheels")
    assert built_for("TORCH")
