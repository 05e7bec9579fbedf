"""RDMA on a software device, in a guest under qemu: a short form of `make test-rdma`."""

import os
import re
import signal
import subprocess

import pytest
from launching import BUILD, ROOT

pytestmark = pytest.mark.long

GUEST = ROOT / "scripts/rdma_guest.sh"
CHECKS = ROOT / "tests/rdma/checks.sh"
CANNOT_BE_HAD = 77
# Time limit of the guest in seconds. It normally ends much earlier, but a busy machine is slow.
LIMIT = 1800


def run_in_guest(*command: object) -> tuple[int, str]:
    """Runs a command in a guest; returns its exit status and its output.

    The guest has one emulated core. If it had two on a busy machine, each core would spin while
    waiting for the other, which takes four times the processor time.
    """
    guest = subprocess.Popen(
        ["bash", str(GUEST), "-n", "1", "-t", str(LIMIT), "--", *map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = guest.communicate(timeout=LIMIT + 120)
    finally:
        if guest.poll() is None:
            os.killpg(guest.pid, signal.SIGKILL)
    return guest.returncode, said


def test_links_calls_and_a_death_on_a_device_in_a_guest():
    for program in ("mccl_transport_test", "mccl_group_conformance"):
        if not (BUILD / "tests" / program).is_file():
            pytest.skip(f"{BUILD / 'tests' / program} is not built")
    status, said = run_in_guest(CHECKS, BUILD, "-", "short")
    if status == CANNOT_BE_HAD:
        pytest.skip(said.strip().splitlines()[-1])
    assert status == 0, said
    # The first of these lines begins with the last output of the guest's firmware.
    assert len(re.findall(r"ok {6}\w", said)) == 4, said
