"""A flood of 100,000 connections against a job, with figures of its memory and descriptors."""

import subprocess

import pytest
from launching import BUILD, environment

FLOOD = "HostilePeer.DISABLED_AHundredThousandConnectionsDelayNothing"


@pytest.mark.long
def test_a_hundred_thousand_connections_delay_nothing():
    """The C++ test is disabled by default because it takes ten seconds or more."""
    program = BUILD / "tests/mccl_backend_test"
    done = subprocess.run(
        [program, "--gtest_also_run_disabled_tests", f"--gtest_filter={FLOOD}"],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100000 connections: at most" in done.stdout, done.stdout
