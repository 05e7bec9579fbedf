"""The programs of docs/mlx.md, and those of the examples that it names, run unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from free_port import free_port
from mlx_ranks import clean_environment, job_environment
from test_mlx_lm import make_model

ROOT = Path(__file__).resolve().parents[3]


def program(name: str, folder: Path) -> Path:
    """Writes the page's code block that begins with this file's name into a file."""
    blocks = re.findall(
        r"```python(?: no-run)?\n(.*?)```", (ROOT / "docs/mlx.md").read_text(), re.DOTALL
    )
    [block] = [block for block in blocks if block.startswith(f"# {name}\n")]
    path = folder / name
    path.write_text(block)
    return path


def run_ranks(size: int, *command: str | Path) -> list[str]:
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=clean_environment() | job_environment(rank, size, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    outputs = []
    for process in processes:
        output, errors = process.communicate(timeout=180)
        assert process.returncode == 0, output + errors
        outputs.append(output)
    return outputs


def test_five_lines(tmp_path: Path):
    outputs = run_ranks(2, program("hello.py", tmp_path))
    for rank, output in enumerate(outputs):
        assert output.startswith(f"{rank} array([2, 2, 2")


@pytest.mark.long
def test_tensor_parallel_inference(tmp_path: Path):
    pytest.importorskip("mlx_lm")
    make_model(tmp_path)
    first, second = run_ranks(2, ROOT / "examples/mlx_generate.py", tmp_path)
    assert first.strip()
    assert not second.strip()


@pytest.mark.long
def test_the_example_learns_and_every_check_passes():
    pytest.importorskip("sklearn")
    outputs = run_ranks(2, ROOT / "examples/mlx_digits.py", "--epochs", "12")
    assert outputs[0].count("ok  ") == 3
    assert "total_ops" in outputs[0]
    assert outputs[1] == ""
