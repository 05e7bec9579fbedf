"""Firewalls that block test packets, routes that differ between hosts, and IPv6-only networks."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ssh_hosts
from cabled_hosts import CabledHosts, shell
from launching import PATIENCE, environment, program, run, wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-"),
]
needs_nft = pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")
PAIR = ("--hosts", "a,b")


@pytest.fixture
def pair() -> Iterator[CabledHosts]:
    """Two hosts joined by a cable without addresses."""
    with CabledHosts(2, [("a", "b")]) as made:
        yield made


def findings(done: subprocess.CompletedProcess[str]) -> list[dict]:
    return [f for f in json.loads(done.stdout)["findings"] if f["severity"] != "note"]


@contextmanager
def without_calls(hosts: CabledHosts, name: str) -> Iterator[None]:
    rules = "table inet filter {\nchain input {\ntype filter hook input priority 0;\n"
    made = shell(*hosts.on(name, "nft", f"{rules}udp dport 29599 drop\n}}\n}}"))
    assert made.returncode == 0, made.stderr
    try:
        yield
    finally:
        shell(*hosts.on(name, "nft", "delete table inet filter"))


@needs_nft
def test_a_firewall_that_drops_calls_at_one_host_is_named(pair: CabledHosts):
    with without_calls(pair, "b"):
        done = pair.mccl("config", *PAIR, "--over", "cables", "--json")
    blocked = [f for f in findings(done) if f["id"] == "calls-blocked"]
    assert {f["where"] for f in blocked} == {"b (c0)", "b (cable)"}
    for each in blocked:
        assert "UDP port 29599" in each["why"] and "udp dport 29599 accept" in each["cure"]


@needs_nft
def test_firewalls_that_drop_all_calls_are_suspected(pair: CabledHosts):
    with without_calls(pair, "a"), without_calls(pair, "b"):
        done = pair.mccl("config", *PAIR, "--over", "cables", "--json")
    silent = [f for f in findings(done) if f["id"] == "calls-silent"]
    assert len(silent) == 1
    assert "a (c0)" in silent[0]["where"] and "b (c0)" in silent[0]["where"]
    assert "UDP port 29599" in silent[0]["why"]


def test_packets_that_rp_filter_drops(tmp_path: Path):
    """Two cables share one network.

    One host sends over the first, the other replies over the second.
    """
    with CabledHosts(2, [("a", "b"), ("a", "b")]) as hosts:
        for name, ends in (("a", (1, 2)), ("b", (3, 4))):
            for cable, end in enumerate(ends):
                hosts.ip(name, "addr", "add", f"10.9.0.{end}/24", "dev", f"c{cable}")
            for each in ("all", "c0", "c1"):
                shell(*hosts.on(name, "sysctl", "-qw", f"net.ipv4.conf.{each}.rp_filter=1"))
        hosts.ip("b", "route", "del", "10.9.0.0/24", "dev", "c0")
        done = hosts.mccl("doctor", *PAIR, "--json", status=1)
        filtered = [f for f in findings(done) if f["id"] == "return-path-filtered"]
        assert filtered, done.stdout
        assert all("rp_filter is 1" in f["what"] for f in filtered)
        for name in "ab":
            shell(*hosts.on(name, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=2"))
        done = hosts.mccl("doctor", *PAIR, "--json", status=None)
        assert not [
            f for f in findings(done) if f["id"] in ("return-path-filtered", "path-blocked")
        ]


@pytest.fixture
def ipv6() -> Iterator[CabledHosts]:
    """Three hosts whose only network has IPv6 addresses, for ssh too."""
    with CabledHosts(3, []) as made:
        desk = made.space("desk")
        shell("ip", "-n", desk, "addr", "add", "fd00:78::100/64", "dev", "net", "nodad")
        text = made.config.read_text()
        for number, name in enumerate(made.names, 1):
            address = f"fd00:78::{number}"
            made.ip(name, "addr", "add", f"{address}/64", "dev", "cable", "nodad")
            made.sshd_options[name] = ("-o", f"ListenAddress=[{address}]:22")
            made.serve_again(name)
            text = text.replace(
                f"HostName {made.address(name)}\n",
                f"HostName {address}\n  HostKeyAlias {made.address(name)}\n",
            )
            made.ip(name, "-4", "addr", "flush", "dev", "cable")
        made.config.write_text(text)
        yield made


def test_an_ipv6_only_network_gets_a_working_hostfile(ipv6: CabledHosts, tmp_path: Path):
    expected = [[f"fd00:78::{number}"] for number in (1, 2, 3)]
    for flags in ((), ("--over", "ethernet")):
        file = tmp_path / "hosts.json"
        ipv6.mccl("config", "--hosts", "a,b,c", *flags, "--output", file)
        assert [host["ips"] for host in json.loads(file.read_text())["hosts"]] == expected
    done = run(
        "--ssh-arg=-F", "--ssh-arg", ipv6.config, "--hostfile", tmp_path / "hosts.json",
        "--env", "MCCL_TRANSPORT=tcp", program(), "bench", "all_reduce", "--sizes", "1K",
        "--no-bounds", "--seconds", "0.01", before=ipv6.on("desk"),
    )  # fmt: skip
    assert "3 ranks" in done.stdout


def test_over_ethernet_is_not_ignored_where_there_is_none():
    with CabledHosts(3, [("a", "b"), ("b", "c"), ("c", "a")]) as hosts:
        for name in hosts.names:
            hosts.ip(name, "addr", "flush", "dev", "cable", "scope", "global")
            hosts.ip(name, "addr", "add", f"{hosts.address(name)}/32", "dev", "cable")
            hosts.ip(name, "route", "add", "10.78.0.100/32", "dev", "cable")
        hosts.isolate()
        done = hosts.mccl("config", "--hosts", "a,b,c", "--over", "ethernet", "--json", status=1)
        assert [f["id"] for f in findings(done) if f["severity"] == "problem"] == ["no-network"]


JOB = ("bench", "all_reduce", "--sizes", "4M", "--no-bounds", "--seconds", "40")


def test_doctor_beside_a_running_job(tmp_path: Path):
    """Doctor finds no fault in config's hostfile and times no link that the job uses."""
    with CabledHosts(3, [("a", "b"), ("b", "c"), ("c", "a")]) as hosts:
        file = tmp_path / "hosts.json"
        hosts.mccl("config", "--hosts", "a,b,c", "--output", file, "--auto-setup", "--yes")
        command = hosts.on("desk", program(), "launch", "--ssh-arg=-F", "--ssh-arg", hosts.config)
        running = subprocess.Popen(
            [*command, "--hostfile", str(file), "--env", "MCCL_TRANSPORT=tcp",
             str(program()), *JOB],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        try:
            for name in hosts.names:
                ranks_talk = hosts.on(name, "ss", "-tn", "state", "established")
                wait_until(lambda words=ranks_talk: "192.168." in shell(*words).stdout)
            done = hosts.mccl("doctor", "--hostfile", file, "--json")
            answer = json.loads(done.stdout)
            assert [f["id"] for f in answer["findings"] if f["id"] != "load-high"] == [
                "not-timed-job"
            ]
            assert all(host["ranks"] == 1 for host in answer["hosts"])
            assert all(path["connects"] and path["mbit_per_s"] == 0 for path in answer["paths"])
            again = hosts.mccl("config", "--hostfile", file)
            assert again.stdout.count("192.168.") > 6 and "bit/s" not in again.stdout
            assert running.poll() is None, running.communicate()
        finally:
            running.terminate()
            running.communicate(timeout=PATIENCE)
