"""Installs the library into a prefix, builds C++ and C programs against it, and runs them."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from free_port import free_port

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD_FOLDER", "build/release")


def run(*command: object, timeout: float = 300) -> str:
    """Runs a command, fails unless it succeeds, and returns its standard output."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix into which the library is installed."""
    assert (BUILD / "CMakeCache.txt").is_file(), f"nothing is built in {BUILD}: run `make build`"
    target = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", target)
    return target


def built(example: str, prefix: Path, build: Path) -> Path:
    """Builds an example with CMake against the prefix and returns its program."""
    run(
        "cmake", "-S", ROOT / "examples" / example, "-B", build, "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={prefix}",
    )  # fmt: skip
    run("cmake", "--build", build)
    return build / "all_reduce"


@pytest.fixture(scope="module")
def program(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the C++ example."""
    return built("cpp", prefix, tmp_path_factory.mktemp("example"))


def test_the_prefix_holds_what_cpp_needs_and_no_more(prefix: Path):
    assert (prefix / "include/mccl/mccl.h").is_file()
    assert list(prefix.glob("lib*/cmake/mccl/mcclConfig.cmake"))
    assert not list(prefix.rglob("*.py"))


def test_installed_headers_name_no_other_part_of_the_tree(prefix: Path):
    known = {path.name for path in (prefix / "include/mccl").iterdir()}
    for header in (prefix / "include/mccl").glob("*.h"):
        for line in header.read_text().splitlines():
            if line.startswith('#include "'):
                folder, name = line.split('"')[1].split("/")
                assert (folder, name in known) == ("mccl", True), f"{header.name}: {line}"


def test_the_program_finds_the_library_of_its_prefix(prefix: Path, tmp_path: Path):
    moved = tmp_path / "moved"
    prefix.rename(moved)
    try:
        assert run(moved / "bin/mccl", "--version").startswith("mccl ")
    finally:
        moved.rename(prefix)


def outputs_of_two(program: Path) -> list[str]:
    """Runs the program as two ranks, both of which must succeed, and returns their outputs."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCCL_")}
    environment |= {
        "MCCL_WORLD_SIZE": "2",
        "MCCL_ROOT": f"127.0.0.1:{free_port()}",
        "MCCL_PORT_BASE": "0",
        "MCCL_CONNECT_TIMEOUT": "30",
    }
    ranks = [
        subprocess.Popen(
            [program],
            env=environment | {"MCCL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], outputs
    return outputs


def test_two_processes_sum(program: Path):
    assert outputs_of_two(program) == ["rank 0 of 2: sum 3\n", "rank 1 of 2: sum 3\n"]


def test_a_project_of_c_alone_finds_the_package(prefix: Path, tmp_path: Path):
    said = outputs_of_two(built("c", prefix, tmp_path))
    assert said == [f"rank {rank} of 2: sum 3, largest 3\n" for rank in range(2)]


def flags_of_pkg_config(prefix: Path) -> list[str]:
    """The flags with which a program is compiled and linked against the prefix."""
    (folder,) = prefix.glob("lib*/pkgconfig")
    flags = run("env", f"PKG_CONFIG_PATH={folder}", "pkg-config", "--cflags", "--libs", "mccl")
    return [*flags.split(), f"-Wl,-rpath,{folder.parent}"]


@pytest.mark.parametrize("page", ["README.md", "docs/cpp-and-c.md"])
def test_the_cpp_programs_of_the_pages_sum(page: str, prefix: Path, tmp_path: Path):
    (code,) = re.findall(r"```cpp\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    source = tmp_path / "sum.cpp"
    source.write_text(code)
    program = tmp_path / "sum"
    run("c++", "-std=c++20", source, "-o", program, *flags_of_pkg_config(prefix))
    assert outputs_of_two(program) == ["3\n", "3\n"]


def test_pkg_config_finds_a_prefix_that_was_moved(prefix: Path, tmp_path: Path):
    moved = tmp_path / "moved"
    prefix.rename(moved)
    try:
        program = tmp_path / "all_reduce"
        source = ROOT / "examples/c/all_reduce.c"
        run("cc", "-std=c99", source, "-o", program, *flags_of_pkg_config(moved))
        assert len(outputs_of_two(program)) == 2
    finally:
        moved.rename(prefix)


@pytest.mark.long
def test_another_project_builds_it_by_fetch_content(tmp_path: Path):
    """Compiles the last commit. Needs no network."""
    commit = run("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    run(
        "cmake", "-S", ROOT / "examples/fetch_content", "-B", tmp_path, "-G", "Ninja",
        "-DCMAKE_BUILD_TYPE=Release", f"-DREPOSITORY={ROOT}", f"-DVERSION={commit}",
    )  # fmt: skip
    run("cmake", "--build", tmp_path, "--target", "all_reduce", timeout=3000)
    said = outputs_of_two(tmp_path / "all_reduce")
    assert said == ["rank 0 of 2: sum 3\n", "rank 1 of 2: sum 3\n"]


def test_a_program_without_settings_is_told_what_to_set(program: Path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCCL_")}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "MCCL_RANK" in done.stderr
