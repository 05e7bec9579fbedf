"""TCP links between two hosts of a network that heal after a fault of the network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from host_ranks import start
from hosts import Hosts

pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(bool(why := Hosts.missing()), reason=why or "-")

ROUNDS = Path(__file__).parent / "cabling/checked_rounds.py"
PATIENCE = 90

#: A firewall that drops the packets of some connections, given as pairs of ports.
FIREWALL = """
    table inet forgetful {
        chain output { type filter hook output priority 0; tcp sport . tcp dport {%s} drop; }
        chain input { type filter hook input priority 0; tcp dport . tcp sport {%s} drop; }
    }
"""


def on(hosts: Hosts, host: int, *words: object, text: str = "") -> str:
    """Runs a command on a host and returns its output. Fails unless it succeeds."""
    command = hosts.command(host, *words)
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def shut_for_5_s(hosts: Hosts) -> None:
    """Takes an interface down, so that its host has no route to the others."""
    hosts.shut(1)
    time.sleep(5)  # the length of the fault
    hosts.open(1)


def cut_for_8_s(hosts: Hosts) -> None:
    """Drops all packets. The interfaces of both hosts stay up."""
    hosts.cut(1)
    time.sleep(8)  # the length of the fault
    hosts.mend(1)


def forget_connections(hosts: Hosts) -> None:
    """Drops the packets of all present connections, and lets new connections pass.

    So does a translator of addresses (NAT) whose table was cleared.
    """
    if shutil.which("nft") is None:
        pytest.skip("nft is not installed")
    lines = on(hosts, 1, "ss", "-Htn", "state", "established").splitlines()
    ends = [[end.rpartition(":")[2] for end in line.split()[2:4]] for line in lines]
    assert ends
    pairs = ", ".join(" . ".join(ports) for ports in ends)
    on(hosts, 1, "nft", "-f", "-", text=FIREWALL % (pairs, pairs))


@pytest.mark.parametrize(
    "fault",
    [shut_for_5_s, pytest.param(cut_for_8_s, marks=pytest.mark.long), forget_connections],
)
def test_links_heal_without_loss(fault: Callable[[Hosts], None]) -> None:
    """A stream of checked sums and messages continues after the fault."""
    hosts = Hosts(2)
    ranks = []
    try:
        ranks = [start(hosts, rank, 2, sys.executable, ROUNDS) for rank in range(2)]
        for process in ranks:
            assert process.stdout.readline() == "begun\n", process.communicate()
        fault(hosts)
        ended = [process.communicate("enough\n", PATIENCE) for process in ranks]
        told = "\n".join(out + err for out, err in ended)
        assert [process.returncode for process in ranks] == [0, 0], told
        assert ended[0][0] == ended[1][0], told
        if fault is forget_connections:
            assert all("was replaced" in err for _, err in ended), told
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
        hosts.close()
