"""Jobs in a guest under qemu, whose kernel can do what this host's may not: a short form of
`make test-rdma`, and `make test-kernel-tls`."""

import os
import re
import signal
import subprocess

import pytest
from launching import BUILD, ROOT

pytestmark = pytest.mark.long

GUEST = ROOT / "scripts/guest.sh"
RDMA_CHECKS = ROOT / "tests/rdma/checks.sh"
KERNEL_TLS_CHECKS = ROOT / "tests/kernel_tls/checks.sh"
CANNOT_BE_HAD = 77
# Time limit of the guest in seconds. It normally ends much earlier, but a busy machine is slow.
LIMIT = 1800


def run_in_guest(*command: object, options: tuple[str, ...] = ()) -> str:
    """Runs a command in a guest, and returns its output. Skips the test if there can be no guest.

    The guest has one emulated core. If it had two on a busy machine, each core would spin while
    waiting for the other, which takes four times the processor time.
    """
    guest = subprocess.Popen(
        ["bash", str(GUEST), *options, "-n", "1", "-t", str(LIMIT), "--", *map(str, command)],
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
    if guest.returncode == CANNOT_BE_HAD:
        pytest.skip(said.strip().splitlines()[-1])
    assert guest.returncode == 0, said
    return said


def passed(said: str) -> int:
    """The number of checks that have passed."""
    # The first of these lines begins with the last output of the guest's firmware.
    return len(re.findall(r"ok {6}\w", said))


@pytest.fixture(autouse=True)
def programs():
    for program in ("mccl_transport_test", "mccl_rendezvous_test", "mccl_group_conformance"):
        if not (BUILD / "tests" / program).is_file():
            pytest.skip(f"{BUILD / 'tests' / program} is not built")


def test_links_calls_and_a_death_on_a_device_in_a_guest():
    assert passed(run_in_guest(RDMA_CHECKS, BUILD, "-", "short")) == 4


def test_connections_that_the_kernel_encrypts_in_a_guest():
    options = ("-k", "trixie-backports")
    assert passed(run_in_guest(KERNEL_TLS_CHECKS, BUILD, options=options)) == 3
