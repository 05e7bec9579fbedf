"""The Rust binding in bindings/rust: its own tests, and its example in a job."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from launching import BUILD, ROOT, environment, program

BINDING = ROOT / "bindings/rust"
LIBRARY = (BUILD / "src").resolve()
VERSION = re.search(r'^version = "(.+)"$', (BINDING / "Cargo.toml").read_text(), re.M)[1]


def rustc(source: Path, folder: Path, *options: object) -> None:
    """Compiles without cargo, so that nothing outside the sources and the compiler is needed."""
    compiler = shutil.which("rustc", path="/usr/bin") or shutil.which("rustc")
    if compiler is None:
        pytest.skip("rustc is not installed")
    command = [compiler, "--edition", "2021", "-D", "warnings", "-L", LIBRARY, *options, source]
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(CARGO_PKG_VERSION=VERSION),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def crate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled crate."""
    folder = tmp_path_factory.mktemp("rust")
    rustc(BINDING / "src/lib.rs", folder, "--crate-type", "rlib", "--crate-name", "mccl")
    return folder


def program_of(source: Path, crate: Path, *options: object) -> Path:
    uses = ("--extern", f"mccl={crate / 'libmccl.rlib'}", "-C", f"link-arg=-Wl,-rpath,{LIBRARY}")
    rustc(source, crate, *uses, *options)
    return crate / source.stem


def test_its_own_tests_pass(crate: Path):
    tests = program_of(BINDING / "tests/ranks.rs", crate, "--test")
    done = subprocess.run(
        [tests],
        env=environment(MCCL_PORT_BASE="0", MCCL_TIMEOUT="60"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test result: ok. 5 passed" in done.stdout


def test_the_example_in_a_job(crate: Path):
    example = program_of(BINDING / "examples/all_reduce.rs", crate)
    done = subprocess.run(
        [str(word) for word in (program(), "launch", "-n", 2, "--no-prefix", example)],
        env=environment(MCCL_TIMEOUT="60"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = sorted(done.stdout.splitlines())
    assert lines == [f"rank {rank} of 2: [3.0, 3.0, 3.0, 3.0]" for rank in range(2)]


def test_the_crate_has_the_version_of_the_library():
    project = re.search(r"project\(mccl VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert project[1] == VERSION
