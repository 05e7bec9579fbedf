"""A network that splits into two parts whose ranks then shrink their group."""

from __future__ import annotations

import subprocess
import sys

import pytest
from host_ranks import start
from hosts import Hosts

pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(bool(why := Hosts.missing()), reason=why or "-")

SIZE, PATIENCE = 4, 60
RANK = """
import mccl.distributed as dist
world = dist.init()
world.barrier()
print("begun", flush=True)
try:
    while True:
        world.all_reduce(1)
except dist.PeerError:
    pass
try:
    rest = world.shrink(timeout=20)
except dist.PeerError as error:
    print("ends:", error)
else:
    print("continues with", rest.size, "ranks, sum", rest.all_reduce(1))
"""
#: A firewall that drops all packets from and to some addresses.
FIREWALL = """
table inet split {
    chain output { type filter hook output priority 0; ip daddr { %s } drop; }
    chain input { type filter hook input priority 0; ip saddr { %s } drop; }
}
"""


def split(hosts: Hosts, part: list[int]) -> None:
    """Separates the hosts of `part` from the others. No process is notified."""
    others = ", ".join(hosts.address(host) for host in range(SIZE) if host not in part)
    for host in part:
        command = hosts.command(host, "nft", "-f", "-")
        done = subprocess.run(command, input=FIREWALL % (others, others), text=True, check=False)
        if done.returncode != 0:
            pytest.skip("nft cannot drop packets here")


@pytest.mark.parametrize(
    ("part", "goes_on"),
    [
        pytest.param([2, 3], [0, 1], id="the half with rank 0 continues"),
        pytest.param([0], [1, 2, 3], id="the majority without rank 0 continues"),
    ],
)
def test_only_one_part_of_a_split_network_continues(part: list[int], goes_on: list[int]) -> None:
    hosts = Hosts(SIZE)
    ranks = []
    try:
        command = (sys.executable, "-c", RANK)
        quick = {"MCCL_LIVENESS_INTERVAL": "1"}
        ranks = [start(hosts, rank, SIZE, *command, **quick) for rank in range(SIZE)]
        for process in ranks:
            assert process.stdout.readline() == "begun\n", process.communicate()
        split(hosts, part)
        ended = [process.communicate(timeout=PATIENCE) for process in ranks]
        told = [out.strip() for out, _ in ended]
        for rank in range(SIZE):
            if rank in goes_on:
                size = len(goes_on)
                assert told[rank] == f"continues with {size} ranks, sum {size}", ended
            else:
                assert told[rank].startswith("ends: "), ended
                assert "reaches too few of the ranks that may be alive" in told[rank], ended
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
        hosts.close()
