"""Clones in folders with unusual names: `make` works, or refuses before it installs anything."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def clone_to(folder: Path) -> Path:
    """Copies the files that make and CMake read first."""
    folder.mkdir()
    for name in ("Makefile", "CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for name in ("cmake", "include", "src", "bindings", "scripts"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-C", str(folder), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", ["a space", "a,comma", "a'quote", "a$dollar", "a:colon"])
@pytest.mark.parametrize("goal", ["setup", "demo", "test", "wheel"])
def test_a_path_that_make_cannot_take_is_refused_first(tmp_path: Path, name: str, goal: str):
    folder = tmp_path / name
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    done = make(folder, goal)
    assert done.returncode == 2
    assert f'cannot be built by make in "{folder}"' in done.stdout
    assert "Nothing was installed" in done.stdout
    assert [path.name for path in folder.iterdir()] == ["Makefile"]


def test_help_is_given_everywhere(tmp_path: Path):
    done = make(clone_to(tmp_path / "a space"))
    assert done.returncode == 0
    assert "make demo" in done.stdout
    assert "find:" not in done.stdout


@pytest.mark.parametrize("name", ["müller-日本", "link"])
def test_letters_of_every_language_and_links_are_taken(tmp_path: Path, name: str):
    folder = clone_to(tmp_path / ("target" if name == "link" else name))
    if name == "link":
        (tmp_path / name).symlink_to(folder)
    done = make(tmp_path / name, "-n", "setup")
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_cmake_takes_spaces_and_letters_of_every_language(tmp_path: Path):
    folder = clone_to(tmp_path / "müller 日本")
    for step in (
        ["-S", folder, "-B", folder / "build", "-DMCCL_PYTHON=OFF", "-DMCCL_CLI=OFF"],
        ["--build", folder / "build", "--target", "mccl_fmt"],
    ):
        done = subprocess.run(
            ["cmake", *map(str, step)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout
