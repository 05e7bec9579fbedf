"""`mccl doctor` on hosts joined by cables that have only IPv6 addresses."""

import json
import shutil
import subprocess

import pytest
import ssh_hosts
from cabled_hosts import CabledHosts

pytestmark = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
PAIR = ("--hosts", "a,b")


@pytest.fixture(scope="module")
def pair():
    """Two hosts joined by a cable with IPv6 addresses."""
    with CabledHosts(2, [("a", "b")]) as made:
        for number, name in enumerate("ab"):
            made.ip(name, "addr", "add", f"fd00:81::{number + 1}/64", "dev", "c0", "nodad")
        yield made


def faults(done: subprocess.CompletedProcess[str]) -> list[str]:
    found = json.loads(done.stdout)["findings"]
    return [f"{f['where']}: {f['what']}" for f in found if f["severity"] != "note"]


def paths_by_ipv6(done: subprocess.CompletedProcess[str]) -> list[dict]:
    return [path for path in json.loads(done.stdout)["paths"] if ":" in path["to_address"]]


def test_every_address_is_tried(pair: CabledHosts):
    done = pair.mccl("doctor", *PAIR, "--json")
    assert faults(done) == []
    paths = paths_by_ipv6(done)
    assert sorted(path["to_address"] for path in paths) == ["fd00:81::1", "fd00:81::2"]
    for path in paths:
        assert path["connects"] and path["largest_packet"] == 1500
        assert path["mbit_per_s"] > 0 and path["latency_us"] > 0


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")
def test_a_firewall(pair: CabledHosts):
    rules = 'iifname "c0" meta nfproto ipv6 tcp dport 29600-32400 drop'
    table = (
        f"table inet filter {{\nchain input {{\ntype filter hook input priority 0;\n{rules}\n}}\n}}"
    )
    made = subprocess.run(pair.on("b", "nft", table), capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    try:
        done = pair.mccl("doctor", *PAIR, "--json", status=1)
    finally:
        subprocess.run(pair.on("b", "nft", "delete table inet filter"), capture_output=True)
    assert len(faults(done)) == 1
    assert "fd00:81::2 at b (c0) is not reached from fd00:81::1" in faults(done)[0]
    cure = next(f["cure"] for f in json.loads(done.stdout)["findings"] if "cure" in f)
    assert "ip6 saddr fd00:81::1 tcp dport" in cure
