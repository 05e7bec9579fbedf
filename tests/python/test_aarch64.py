"""The engine built for ARM, under qemu: some kernels, and groups of ARM and native ranks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = Path("build") / "aarch64"
NATIVE = Path(os.environ.get("BUILD_FOLDER", "build/release"))


def steps_to_do(build: Path) -> str:
    """Returns what ninja would compile or link, or its message that there is no work to do."""
    return subprocess.run(
        ["cmake", "--build", build, "--target", "mccl_kernels_test", "mccl_group_conformance",
         "--", "-n"],
        stdout=subprocess.PIPE,
        text=True,
    ).stdout  # fmt: skip


def test_ranks_of_both_processors_agree_and_kernels_give_the_same_bits():
    """Runs a short form of `make test-aarch64`, if its programs have been built."""
    engine = ROOT / BUILT / "engine"
    if not (engine / "tests" / "mccl_group_conformance").exists():
        pytest.skip("nothing was built for ARM here yet: make test-aarch64 does")
    if "no work to do" not in steps_to_do(engine):
        pytest.skip("what was built for ARM is of other sources: make test-aarch64 builds it anew")
    if not (ROOT / NATIVE / "tests" / "mccl_group_conformance").exists():
        pytest.skip("this machine's own ranks were not built: make build-tests does")
    done = subprocess.run(
        [ROOT / "scripts" / "aarch64" / "engine.sh", BUILT, NATIVE, "2", "short"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    if done.returncode == 3:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout
    assert "aarch64: 2 ranks on ARM and 2 on" in done.stdout
