"""Compiler options of the sources whose results must not depend on the processor."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / os.environ.get("BUILD_FOLDER", "build/release")

#: The kernels, and the cost model, with which all ranks must choose the same algorithm.
EXACT = [
    *("src/kernels/" + name for name in ("fold_float.cpp", "codec/blocks.cpp")),
    *(
        "src/schedule/" + name
        for name in ("cable_map.cpp", "choose.cpp", "cost.cpp", "step_times.cpp", "walk.cpp")
    ),
]


@pytest.mark.parametrize("source", EXACT)
def test_no_multiplication_is_fused_with_an_addition(source):
    commands = BUILD / "compile_commands.json"
    if not commands.exists():
        pytest.skip(f"{BUILD} was not configured by CMake here")
    found = [
        entry["command"]
        for entry in json.loads(commands.read_text())
        if Path(entry["file"]) == ROOT / source and "mccl_objects.dir" in entry["command"]
    ]
    assert found, f"{source} is not compiled"
    assert all("-ffp-contract=off" in command for command in found)
