"""The shell scripts: their help, and whether the bash of macOS (3.2) can run them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path
    for path in [*ROOT.glob("scripts/*"), *ROOT.glob(".ci/*")]
    if path.is_file() and re.match(r"#!.*\bbash\b", path.read_text().split("\n", 1)[0])
)
MATRIX = ROOT / "scripts/benchmark_matrix.sh"

# Features of bash 4 and later, with the patterns that find them in a script.
NEWER = {
    "mapfile": r"\b(?:mapfile|readarray)\b",
    "associative arrays": r"\b(?:declare|local|typeset)\s+-[a-zA-Z]*[Ang]",
    "changes of case": r"\$\{\w+(?:\[[^]]*\])?(?:,,?|\^\^?)",
    "transformations": r"\$\{\w+(?:\[[@*]\])?@[A-Za-z]\}",
    "negative subscripts": r"\$\{\w+\[-\d",
    "|&": r"\|&",
    "&>>": r"&>>",
    ";& and ;;&": r";&|;;&",
    "coproc": r"\bcoproc\b",
    "wait -n": r"\bwait\s+-n\b",
    "[[ -v": r"\[\[?\s+-v\s",
    "times of printf": r"printf\s.*%\(",
    "globstar": r"\bglobstar\b",
    "sequences with steps": r"\{\d+\.\.\d+\.\.",
    # In bash 3.2, this is unbound under set -u if no arguments are left.
    "the arguments from one on": r"\$\{@:\d",
}


def newer_than_bash_3(text: str) -> list[str]:
    """Returns the features in the text that bash 3.2 lacks."""
    code = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    return [name for name, pattern in NEWER.items() if re.search(pattern, code)]


def arrays_that_may_be_empty(text: str) -> list[str]:
    """Returns the arrays that begin empty and are used before their length is checked.

    In bash 3.2 such an array is an unbound variable, which ends a script under `set -u`.
    """
    found = []
    for name in set(re.findall(r"^\s*(\w+)=\((?:\s*\)|\"\$@\"\))", text, re.M)):
        use = text.find(f'"${{{name}[@]}}"')
        if use >= 0 and f"${{#{name}[@]}}" not in text[:use]:
            found.append(name)
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_bash_3_can_run_every_script(script: Path):
    text = script.read_text()
    assert newer_than_bash_3(text) == []
    assert arrays_that_may_be_empty(text) == []


@pytest.mark.parametrize(
    "line",
    [
        "mapfile -t lines < file",
        "declare -A ages",
        'echo "${name,,}"',
        'echo "${name^}"',
        'echo "${name@Q}"',
        'echo "${names[-1]}"',
        "make |& tee log",
        "make &>> log",
        "wait -n",
        "[[ -v name ]]",
        'run "${@:3}"',
    ],
)
def test_code_that_bash_3_cannot_run_is_found(line: str):
    assert len(newer_than_bash_3(f"set -eu\n{line}\n")) == 1
    assert newer_than_bash_3(f"  # {line}\n") == []


def test_an_array_that_may_be_empty_is_found():
    loop = 'for name in "${names[@]}"; do :; done\n'
    assert arrays_that_may_be_empty("names=()\n" + loop) == ["names"]
    assert arrays_that_may_be_empty('names=("$@")\n' + loop) == ["names"]
    assert arrays_that_may_be_empty('names=()\n[ "${#names[@]}" -gt 0 ] || exit\n' + loop) == []
    assert arrays_that_may_be_empty("names=(a b)\n" + loop) == []


def test_the_brewfile_has_what_debian_needs():
    """The Brewfile has a formula for every library in scripts/apt-packages*.txt."""
    formulas = set(re.findall(r'^brew "([^"]+)"', (ROOT / "Brewfile").read_text(), re.M))
    wanted = {
        "cmake": "cmake",
        "ninja-build": "ninja",
        "ccache": "ccache",
        "clang-format": "clang-format",
        "pkg-config": "pkgconf",
        "libhwy-dev": "highway",
        "libspdlog-dev": "spdlog",
        "libfmt-dev": "fmt",
        "nlohmann-json3-dev": "nlohmann-json",
        "libcli11-dev": "cli11",
        "libssl-dev": "openssl@3",
        "libgtest-dev": "googletest",
        "libbenchmark-dev": "google-benchmark",
    }
    lists = "".join(path.read_text() for path in ROOT.glob("scripts/apt-packages*.txt")).split()
    assert {package for package in wanted if package not in lists} == set()
    libraries = {p for p in lists if p.startswith("lib") and p.endswith("-dev")}
    elsewhere = {
        "libclang-rt-dev",
        "libgmock-dev",
        "librapidcheck-dev",
        "libopenmpi-dev",
        "libmpich-dev",
        "libpmix-dev",
    }
    assert libraries - set(wanted) <= elsewhere, "a library that the Brewfile may lack"
    assert set(wanted.values()) <= formulas


def run_matrix(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCCL_")}
    environment |= {"MCCL_PORT_BASE": "0", "PYTHON": sys.executable} | variables
    return subprocess.run(
        ["bash", MATRIX, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )


def test_the_matrix_says_what_it_takes():
    done = run_matrix("--help")
    assert done.returncode == 0
    for name in ("BACKENDS", "RANKS", "SIZES", "STEPS", "BATCH", "PYTHON", "FOLDER"):
        assert name in done.stdout
    assert "set -euo" not in done.stdout
    assert run_matrix("help").stdout == done.stdout
    assert run_matrix("--tiny").returncode == 2
    assert run_matrix("a", "b").returncode == 2


def test_the_matrix_refuses_before_it_measures(tmp_path: Path):
    done = run_matrix(tmp_path / "out", SIZES="tiny huge")
    assert done.returncode != 0
    assert "SIZES contains 'huge'" in done.stderr
    assert done.stdout == ""
    done = run_matrix(tmp_path / "out", PYTHON="/bin/false")
    assert done.returncode == 1
    assert "lacks one of: torch, numpy, mccl" in done.stderr
    assert "make setup" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The output folder of a small matrix, and the text that the script printed."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("matrix")
    done = run_matrix(folder, SIZES="tiny", BACKENDS="mccl gloo", STEPS="4", WARMUP="1", BATCH="4")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


@pytest.mark.long
def test_throughput_is_measured_and_compared(matrix: tuple[Path, str]):
    np = pytest.importorskip("numpy")
    folder, _ = matrix
    stats = json.loads((folder / "tiny-mccl-2.json").read_text())
    assert (stats["kind"], stats["world_size"], stats["backend"]) == ("ddp", 2, "mccl")
    assert len(stats["step_seconds"]) == 4
    for name in ("tiny-mccl-2.png", "tiny-mccl-2_bars.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    with np.load(folder / "tiny-mccl-2.npz") as arrays:
        assert arrays["ddp_step_seconds"].tolist() == stats["step_seconds"]
        assert arrays["world_size"] == 2


@pytest.mark.long
@pytest.mark.long
def test_the_matrix_ends_with_a_table(matrix: tuple[Path, str]):
    table = matrix[1].rstrip().split("\n\n")[-1].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert len({len(row) for row in rows}) == 1, table
    assert [row[:4] for row in rows[2:]] == [
        ["tiny", "4", "2", "mccl"],
        ["tiny", "4", "2", "gloo"],
    ]
    for row in rows[2:]:
        one, several, ratio = map(float, row[4:])
        assert ratio == pytest.approx(several / one, rel=0.02)  # the table's numbers are rounded
