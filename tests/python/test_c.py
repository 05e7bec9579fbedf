"""C programs in a job: the examples, the code in docs/cpp-and-c.md, and ranks of C and Python."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching import BUILD, ROOT, environment, program

LIBRARY = BUILD / "src"
PAGE = ROOT / "docs/cpp-and-c.md"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")


def compiled(source: Path, target: Path) -> Path:
    """Compiles a C program against the library in the build folder."""
    compiler = shutil.which("cc")
    assert compiler is not None, "the library was built with a compiler, which is gone"
    subprocess.run(
        [compiler, *STRICT, f"-I{ROOT / 'include'}", source, "-o", target, f"-L{LIBRARY}", "-lmccl",
         f"-Wl,-rpath,{LIBRARY.resolve()}"],
        check=True,
    )  # fmt: skip
    return target


def launch(
    size: int, *command: object, options: tuple = (), status: int = 0
) -> subprocess.CompletedProcess:
    words = [program(), "launch", "-n", size, "--no-prefix", *options, "--", *command]
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment(MCCL_TIMEOUT="60"),
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def block(language: str) -> str:
    """Returns the page's first code block in that language."""
    return re.findall(rf"```{language}(?: [^\n]*)?\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the example."""
    return compiled(ROOT / "examples/c/all_reduce.c", tmp_path_factory.mktemp("c") / "all_reduce")


def test_the_example_sums_as_the_page_says(example: Path):
    said = sorted(launch(2, example).stdout.splitlines())
    assert "\n".join(f"[{rank}] {line}" for rank, line in enumerate(said)) in PAGE.read_text()
    assert said == [f"rank {rank} of 2: sum 3, largest 3" for rank in range(2)]


def test_the_example_prints_its_errors(example: Path):
    done = subprocess.run([example], capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("MCCL_ERROR_INVALID_ARGUMENT: MCCL_RANK and MCCL_WORLD_SIZE")


def test_the_five_lines_of_the_page(tmp_path: Path):
    source = tmp_path / "five.c"
    lines = block("c")
    assert len(lines.splitlines()) == 5
    headers = "#include <mccl/c.h>\n#include <stdio.h>\n"
    source.write_text(f"{headers}int main(void) {{\n{lines}return 0;\n}}\n")
    assert launch(2, compiled(source, tmp_path / "five")).stdout == "2\n2\n"


def test_the_binding_of_the_examples():
    script = ROOT / "examples/c/binding.py"
    done = launch(2, sys.executable, script, LIBRARY / "libmccl.so.0")
    assert done.stdout == "[3.0, 3.0, 3.0, 3.0]\n" * 2


@pytest.mark.parametrize("dead", [0, 1])
def test_ranks_of_c_continue_after_a_death_and_take_in_a_replacement(tmp_path: Path, dead: int):
    rank = compiled(Path(__file__).parent / "elastic_rank.c", tmp_path / "elastic_rank")
    options = ("--max-restarts", 1, "--restart", "failed")
    said = launch(3, rank, dead, options=options).stdout
    alive = [each for each in range(3) if each != dead]
    expected = [
        f"shrunk: rank {old} is {new} of 2, sum {sum(alive)}" for new, old in enumerate(alive)
    ]
    expected += [f"renewed: rank {each} is {each} of 3, sum 3" for each in range(3)]
    assert sorted(said.splitlines()) == sorted(expected)


MIXED = """
import os, sys
if os.environ["MCCL_RANK"] == "0":
    os.execv(sys.argv[1], sys.argv[1:])
import numpy as np, mccl.distributed as dist
world = dist.init()
total = world.all_reduce(np.full(1000, 2, np.float32))
world.all_reduce(total[:1], op="max")
world.barrier()
print("NumPy:", total[0])
"""


@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="not installed: numpy")
def test_a_rank_of_c_beside_one_of_numpy(example: Path, tmp_path: Path):
    script = tmp_path / "mixed.py"
    script.write_text(MIXED)
    said = launch(2, sys.executable, script, example).stdout
    assert sorted(said.splitlines()) == ["NumPy: 3.0", "rank 0 of 2: sum 3, largest 3"]
