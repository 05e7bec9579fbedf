"""Sweeps of C++ tests of which `make test` runs only a part."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / os.environ.get("BUILD_FOLDER", "build/release") / "tests"


@pytest.mark.long
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_every_allocation_of_every_call_may_fail(transport: str):
    program = TESTS / "mccl_backend_test"
    if not program.exists():
        pytest.skip("the C++ tests are not built: make build-tests")
    swept = f"*OutOfMemoryAtEachPoint*_{transport}"
    ran = subprocess.run(
        [program, f"--gtest_filter={swept}", "--gtest_brief=1"],
        env=os.environ | {"MCCL_TEST_EVERY_POINT": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "[  PASSED  ]" in ran.stdout
