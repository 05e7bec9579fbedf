"""`mccl doctor` on 20 hosts."""

import json

import pytest
import ssh_hosts
from cabled_hosts import CabledHosts, shell

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-"),
]
COUNT = 20


def test_the_one_slow_host_is_found_among_many():
    with CabledHosts(COUNT, []) as hosts:
        slow = hosts.names[-1]
        shaped = shell(
            *hosts.on(slow, "tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", "20mbit",
                      "burst", "32k", "latency", "50ms"),
        )  # fmt: skip
        if shaped.returncode != 0:
            pytest.skip(shaped.stderr)
        names = ",".join(hosts.names)
        done = hosts.mccl("doctor", "--hosts", names, "--json", status=None)
        answer = json.loads(done.stdout)
        assert len(answer["paths"]) == COUNT * (COUNT - 1)
        assert all(path["connects"] and path["mbit_per_s"] > 0 for path in answer["paths"])
        found = [f["where"] for f in answer["findings"] if f["id"] == "path-slow"]
        assert len(found) == COUNT - 1 and all(each.startswith(f"{slow} ") for each in found)
