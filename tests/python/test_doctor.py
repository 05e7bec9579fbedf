"""`mccl doctor` on one machine and on hosts joined by cables. Each test plants one fault."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ssh_hosts
from cabled_hosts import CabledHosts, shell
from launching import environment, program

needs_hosts = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
CABLES = [("a", "b"), ("b", "c"), ("c", "a")]
ALL = ("--hosts", "a,b,c")


@pytest.fixture(scope="module")
def hosts():
    """Three hosts in a ring of cables that have addresses."""
    with CabledHosts(3, CABLES) as made:
        made.give_addresses()
        yield made


def faults(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Returns a line for each finding except notes."""
    found = json.loads(done.stdout)["findings"]
    for each in found:
        assert each["id"] and each["what"] and each["where"] and each["why"]
    return [f"{f['where']}: {f['what']}" for f in found if f["severity"] != "note"]


def look(hosts: CabledHosts, *words: object, sound: bool = False) -> list[str]:
    done = hosts.mccl("doctor", *(words or ALL), "--json", status=0 if sound else 1)
    return faults(done)


@contextmanager
def served(hosts: CabledHosts, name: str) -> Iterator[None]:
    """Restarts the host's sshd with the options just set, and restores the defaults afterwards."""
    try:
        hosts.serve_again(name)
        yield
    finally:
        hosts.sshd_options.clear()
        hosts.before_sshd.clear()
        hosts.serve_again(name)


def alone(*words: str, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [program(), "doctor", *words], capture_output=True, text=True, env=environment(**variables)
    )
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done


def test_alone_it_looks_at_this_machine():
    answer = json.loads(alone("--json").stdout)
    assert len(answer["hosts"]) == 1
    here = answer["hosts"][0]
    assert here["cores"] == len(os.sched_getaffinity(0))
    assert here["reached"] and here["versions"]["mccl"] == answer["mccl"]


def test_threads_that_a_program_is_given_are_not_the_cores():
    said = alone("--json", OMP_NUM_THREADS="1", OMP_THREAD_LIMIT="1").stdout
    assert json.loads(said)["hosts"][0]["cores"] == len(os.sched_getaffinity(0))


def test_settings_that_mccl_would_refuse():
    done = alone("--json", status=1, MCCL_TIMEOU="3", MCCL_LISTEN_ADDR="1.2.3.4", MCCL_JOB_KEY="k")
    text = "\n".join(faults(done))
    assert "MCCL_TIMEOUT" in text and "1.2.3.4, and no interface has that address" in text
    assert json.loads(done.stdout)["hosts"][0]["settings"]["MCCL_JOB_KEY"] == "(set)"


def test_the_default_output_is_a_table():
    lines = alone().stdout.splitlines()
    assert lines[0].split()[:3] == ["host", "system", "cores"]
    assert lines[-1] == "no faults found"


@needs_hosts
def test_a_healthy_cluster_has_no_fault(hosts: CabledHosts):
    done = hosts.mccl("doctor", *ALL, "--json")
    assert faults(done) == []
    paths = json.loads(done.stdout)["paths"]
    assert len(paths) == 6 + 6  # both directions of each cable and of each pair on the side network
    for path in paths:
        assert path["connects"] and path["largest_packet"] == 1500
        assert path["mbit_per_s"] > 0 and path["latency_us"] > 0


def anything(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Returns all findings, including notes, except those on how busy this machine's cores are."""
    found = json.loads(done.stdout)["findings"]
    texts = [f"{f['where']}: {f['what']}" for f in found]
    return [
        text for text in texts if ": the load is " not in text and ": cores run at " not in text
    ]


@pytest.mark.long
@needs_hosts
@pytest.mark.parametrize(
    "words",
    [
        ("--hosts", "a"),
        ("--hosts", "a,b"),
        ("--hosts", "c,b,a"),
        ("--hosts", "a,b,c", "--user", "root"),
        ("--hosts", "root@a:22,root@b,c:22"),
        ("--hosts", "10.78.0.1,10.78.0.2,c"),
        ("--hosts", "a,b,c", "--patience", "600", "--verbose"),
    ],
    ids=lambda words: " ".join(words[1:]),
)
def test_a_healthy_cluster_has_no_findings(hosts: CabledHosts, words: tuple):
    assert anything(hosts.mccl("doctor", *words, "--json")) == []
    assert anything(hosts.mccl("config", *words, "--json")) == []


@pytest.mark.long
@needs_hosts
def test_doctor_accepts_what_config_has_set_up(tmp_path: Path):
    """Doctor accepts the hosts and the hostfile that config made from cables without addresses."""
    file = tmp_path / "desk.json"
    with CabledHosts(3, CABLES) as hosts:
        hosts.mccl("config", *ALL, "--output", file, "--auto-setup", "--yes")
        assert anything(hosts.mccl("doctor", "--hostfile", file, "--json")) == []
        text = hosts.mccl("doctor", "--hostfile", file).stdout
        assert text.endswith("no faults found\n")
        # A second run has nothing to set up and leaves the file unchanged.
        before = file.read_text()
        again = hosts.mccl("config", "--hostfile", file, "--json", "--output", file)
        assert json.loads(again.stdout)["setup"] == [] and file.read_text() == before


@needs_hosts
def test_a_host_that_does_not_answer(hosts: CabledHosts):
    hosts.use_key("stranger")
    try:
        found = look(hosts, "--hosts", "a")
    finally:
        hosts.use_key("client")
    assert found == ["a: the host cannot be queried"]


@needs_hosts
def test_a_cut_cable(hosts: CabledHosts):
    hosts.ip("b", "link", "set", "c0", "down")
    try:
        found = look(hosts)
    finally:
        hosts.ip("b", "link", "set", "c0", "up")
    assert found == [
        "a: c0 has the address 10.81.0.1/30 and no carrier",
        "b: c0 has the address 10.81.0.2/30 and is down",
    ]


@needs_hosts
def test_addresses_of_different_networks(hosts: CabledHosts):
    hosts.ip("c", "addr", "add", "10.82.0.2/30", "dev", "c1")
    hosts.ip("c", "addr", "del", "10.81.1.2/30", "dev", "c1")
    try:
        found = look(hosts)
    finally:
        hosts.ip("c", "addr", "add", "10.81.1.2/30", "dev", "c1")
        hosts.ip("c", "addr", "del", "10.82.0.2/30", "dev", "c1")
    assert found == [
        "b (c1), c (c1): the ends of a cable are in different networks: 10.81.1.1/30 and "
        "10.82.0.2/30"
    ]


@needs_hosts
def test_addresses_that_no_cable_joins(hosts: CabledHosts):
    """One network's addresses are on interfaces of a and c that lead to b, not to each other."""
    hosts.ip("a", "addr", "add", "10.83.0.1/29", "dev", "c0")
    hosts.ip("c", "addr", "add", "10.83.0.2/29", "dev", "c1")
    try:
        found = look(hosts)
    finally:
        hosts.ip("a", "addr", "del", "10.83.0.1/29", "dev", "c0")
        hosts.ip("c", "addr", "del", "10.83.0.2/29", "dev", "c1")
    assert found == [
        "a (c0), c (c1): 10.83.0.1 and 10.83.0.2 are in one network, but no cable joins their "
        "interfaces; a (c0) leads to b (c0); c (c1) leads to b (c1)"
    ]


@needs_hosts
def test_an_address_that_two_hosts_have(hosts: CabledHosts):
    hosts.ip("a", "addr", "add", "10.84.0.1/32", "dev", "c0")
    hosts.ip("c", "addr", "add", "10.84.0.1/32", "dev", "c1")
    try:
        found = look(hosts)
    finally:
        hosts.ip("a", "addr", "del", "10.84.0.1/32", "dev", "c0")
        hosts.ip("c", "addr", "del", "10.84.0.1/32", "dev", "c1")
    assert found == ["a (c0), c (c1): the address 10.84.0.1 is used 2 times"]


@needs_hosts
def test_packets_that_get_lost_on_the_way(hosts: CabledHosts):
    """A port of the switch has a smaller MTU than the hosts."""
    hosts.ip("desk", "link", "set", "to-b", "mtu", 1000)
    try:
        found = look(hosts)
    finally:
        hosts.ip("desk", "link", "set", "to-b", "mtu", 1500)
    assert len(found) == 4
    assert all("packets of 1500 bytes are lost on the way" in each for each in found)
    assert all("; packets of 1000 bytes arrive" in each for each in found)
    assert all("b (cable)" in each for each in found)


@needs_hosts
def test_an_mtu_that_is_too_small_at_one_end(hosts: CabledHosts):
    hosts.ip("c", "link", "set", "c2", "mtu", 1000)
    try:
        found = look(hosts)
    finally:
        hosts.ip("c", "link", "set", "c2", "mtu", 1500)
    assert "c: the MTU of c2 is 1000" in found
    assert "c (c2), a (c2): MTUs differ: c (c2) has 1000, a (c2) has 1500" in found
    assert len(found) == 2


@contextmanager
def firewall(hosts: CabledHosts, name: str, rule: str) -> Iterator[None]:
    """Gives the host a firewall with this one rule for incoming packets."""
    rules = "table inet filter {\nchain input {\ntype filter hook input priority 0;\n"
    applied = shell(*hosts.on(name, "nft", f"{rules}{rule}\n}}\n}}"))
    assert applied.returncode == 0, applied.stderr
    try:
        yield
    finally:
        shell(*hosts.on(name, "nft", "delete table inet filter"))


needs_nft = pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")


@needs_hosts
@needs_nft
@pytest.mark.parametrize(
    ("verdict", "why"),
    [("drop", "timed out"), pytest.param("reject", "refused", marks=pytest.mark.long)],
)
def test_a_firewall_in_one_direction(hosts: CabledHosts, verdict: str, why: str):
    with firewall(hosts, "c", f'iifname "c1" tcp dport 29600-32400 {verdict}'):
        found = look(hosts)
    assert len(found) == 1
    assert found[0].startswith("b (c1) to c: 10.81.1.2 at c (c1) is not reached from 10.81.1.1: ")
    assert why in found[0] and "the other direction is open" in found[0]


@pytest.mark.long
@needs_hosts
@needs_nft
def test_a_firewall_in_both_directions(hosts: CabledHosts):
    with (
        firewall(hosts, "b", 'iifname "c1" tcp dport 29600-32400 drop'),
        firewall(hosts, "c", 'iifname "c1" tcp dport 29600-32400 drop'),
    ):
        found = look(hosts)
    assert len(found) == 2 and "the other direction" not in "".join(found)


@pytest.mark.long
@needs_hosts
@needs_nft
def test_a_firewall_for_some_ports(hosts: CabledHosts):
    with firewall(hosts, "c", 'iifname "c1" tcp dport 32000-32400 reject'):
        found = look(hosts)
    assert len(found) == 1 and "; other ports that a job uses are reached" in found[0]


@needs_hosts
def test_a_cable_that_is_slower_than_the_others(hosts: CabledHosts):
    shaped = hosts.on(
        "b", "tc", "qdisc", "add", "dev", "c1", "root", "tbf", "rate", "20mbit",
        "burst", "32k", "latency", "50ms",
    )  # fmt: skip
    applied = shell(*shaped)
    if applied.returncode != 0:
        pytest.skip(applied.stderr)
    try:
        found = look(hosts)
    finally:
        shell(*hosts.on("b", "tc", "qdisc", "del", "dev", "c1", "root"))
    assert len(found) == 1
    assert found[0].startswith("b (c1) to c (c1): this link carries ")
    assert "Mbit/s, but similar links carry" in found[0]


@needs_hosts
@pytest.mark.parametrize(
    ("seconds", "which"),
    [(3600, "ahead of"), pytest.param(-3600, "behind", marks=pytest.mark.long)],
)
def test_a_clock_that_is_off(hosts: CabledHosts, tmp_path: Path, seconds: int, which: str):
    changes = f"""
def answered(answer):
    if "clock" in answer: answer["clock"] += {seconds}
    return [answer]
"""
    with hosts.with_odd_probe("b", tmp_path, changes):
        found = look(hosts)
    assert len(found) == 1
    assert found[0].startswith("b: the host's clock is 3")
    assert f"s {which} this machine's" in found[0]


@needs_hosts
def test_few_files(hosts: CabledHosts):
    hosts.before_sshd["b"] = ("prlimit", "--nofile=200:200")
    with served(hosts, "b"):
        assert look(hosts) == ["b: a process may open 200 files at most"]


@needs_hosts
def test_no_shared_memory(hosts: CabledHosts):
    hosts.before_sshd["b"] = (
        "unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro,size=1m x /dev/shm; exec "$@"', "-",
    )  # fmt: skip
    with served(hosts, "b"):
        assert look(hosts) == ["b: /dev/shm cannot be written: there is no shared memory"]


@needs_hosts
def test_little_shared_memory(hosts: CabledHosts):
    hosts.before_sshd["b"] = (
        "unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=9m x /dev/shm; exec "$@"', "-",
    )  # fmt: skip
    with served(hosts, "b"):
        assert look(hosts) == ["b: /dev/shm has 9 MiB left"]


@needs_hosts
def test_settings_that_differ(hosts: CabledHosts):
    hosts.sshd_options["b"] = ("-o", "SetEnv=MCCL_TRANSPORT_CRC=1")
    with served(hosts, "b"):
        assert look(hosts) == ["a (not set), b 1, c (not set): MCCL_TRANSPORT_CRC differs"]


@needs_hosts
def test_versions_that_differ(hosts: CabledHosts, tmp_path: Path):
    (tmp_path / "python3").write_text("#!/bin/sh\necho torch 2.11.0\n")
    (tmp_path / "other").write_text("#!/bin/sh\necho torch 2.10.0\n")
    for fake in tmp_path.iterdir():
        fake.chmod(0o755)
    file = tmp_path / "desk.json"
    file.write_text(
        json.dumps([{"ssh": n, "python": f"{tmp_path}/{p}"} for n, p in
                    [("a", "python3"), ("b", "other"), ("c", "python3")]])
    )  # fmt: skip
    found = look(hosts, "--hostfile", file)
    assert found == ["a 2.11.0, b 2.10.0, c 2.11.0: versions of torch differ"]


@needs_hosts
def test_mlx_that_differs_and_torch_that_one_host_lacks(hosts: CabledHosts, tmp_path: Path):
    entries = []
    for name, said in (("a", "torch 2.11.0\nmlx 0.32.4"), ("b", "mlx 0.31.0"),
                       ("c", "torch 2.11.0\nmlx 0.32.4")):  # fmt: skip
        fake = tmp_path / name
        fake.write_text(f"#!/bin/sh\necho '{said}'\n")
        fake.chmod(0o755)
        entries.append({"ssh": name, "python": str(fake)})
    file = tmp_path / "desk.json"
    file.write_text(json.dumps(entries))
    done = hosts.mccl("doctor", "--hostfile", file, "--json", status=1)
    assert faults(done) == [
        "a 0.32.4, b 0.31.0, c 0.32.4: versions of mlx differ",
        "b: torch is not installed, but 2 of 3 hosts have it",
    ]
    cures = [f["cure"] for f in json.loads(done.stdout)["findings"]]
    assert any("pip install mlx==0.32.4" in cure for cure in cures)


@needs_hosts
def test_a_hostfile_that_does_not_fit(hosts: CabledHosts, tmp_path: Path):
    file = tmp_path / "desk.json"
    file.write_text(
        json.dumps([{"ssh": "a", "ips": ["10.81.0.1"]}, {"ssh": "b", "ips": ["9.9.9.9"]}])
    )
    found = look(hosts, "--hostfile", file)
    assert found == ["b: the hostfile selects 9.9.9.9, but the host has no such address"]


@needs_hosts
def test_a_host_without_mccl(hosts: CabledHosts):
    """Doctor still examines the other hosts."""
    # There may be a second mccl beside the Python that is first in PATH.
    installed = {program().resolve(), Path(sys.executable).parent / "mccl"}
    hide = "".join(f"mount --bind /dev/null {path};" for path in installed if path.is_file())
    hosts.before_sshd["b"] = ("unshare", "--mount", "sh", "-c", f'{hide} exec "$@"', "-")
    with served(hosts, "b"):
        done = hosts.mccl("doctor", *ALL, "--json", status=1)
        refused = hosts.mccl("config", *ALL, status=1)
    assert faults(done) == ["b: mccl is not installed on this host"]
    answer = json.loads(done.stdout)
    assert {(path["from"], path["to"]) for path in answer["paths"]} == {("a", "c"), ("c", "a")}
    cure = answer["findings"][0]["cure"]
    assert "scp build/wheels/mccl_engine-*.whl b:" in cure and "pip install" in cure
    assert "b: mccl is not installed on this host; install the same build" in refused.stderr


def test_help_teaches():
    text = alone("--help").stdout
    assert "Exit status" in text and "--hostfile" in text and "--json" in text


@pytest.mark.parametrize("flags", [("--host", "a"), ("--hosts", "a b"), ("--hostfile", "/none")])
def test_bad_arguments(flags: tuple):
    alone(*flags, status=2)


@pytest.mark.long
def test_everything_that_is_there_goes_into_one_file(tmp_path: Path):
    file = tmp_path / "all.json"
    done = alone("--selftest", "--output", str(file))
    answer = json.loads(file.read_text())
    assert answer["hosts"] and answer["findings"] is not None
    outcomes = {trial["name"]: trial["outcome"] for trial in answer["selftest"]}
    assert outcomes["shm, 2 ranks"] == outcomes["tcp, 2 ranks"] == "good"
    assert "failed" not in outcomes.values()
    rows = answer["selftest"][0]["result"]["rows"]
    assert {row["collective"] for row in rows} >= {"all_reduce", "all_to_all", "sendrecv"}
    assert "bound" in done.stdout and "all.json contains all results" in done.stdout


@pytest.mark.long
@needs_hosts
def test_everything_among_hosts_goes_into_one_file(hosts: CabledHosts, tmp_path: Path):
    """Each host runs its own installation of mccl, which lies in another folder on one host."""
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    (elsewhere / "mccl").symlink_to(program())
    hosts.with_programs("b", elsewhere)
    file = tmp_path / "all.json"
    try:
        done = hosts.mccl("doctor", *ALL, "--selftest", "--output", file)
    finally:
        hosts.sshd_options.clear()
        hosts.serve_again("b")
    answer = json.loads(file.read_text())
    assert [host["host"] for host in answer["hosts"]] == ["a", "b", "c"]
    among = answer["selftest"][-1]
    assert among["name"] == "all hosts" and among["outcome"] == "good"
    assert among["result"]["ranks"] == 3
    rows = among["result"]["rows"]
    assert {row["collective"] for row in rows} >= {"all_reduce", "all_to_all", "sendrecv"}
    assert all(row["wrong"] == 0 for row in rows if row["wrong"] is not None)
    figures = [line for line in done.stdout.splitlines() if line.startswith("all hosts ")]
    assert len(figures) > 10 and any(line.count("GB/s") == 2 for line in figures)


@needs_hosts
def test_safe_fixes_are_applied_and_can_be_undone(hosts: CabledHosts, tmp_path: Path):
    hosts.ip("b", "link", "set", "c0", "down")
    hosts.ip("c", "link", "set", "c2", "mtu", 1000)
    try:
        refused = hosts.mccl("doctor", *ALL, "--fix", status=1, cwd=tmp_path)
        assert "Run these commands? [y/N]" in refused.stderr and not list(tmp_path.iterdir())
        # After the fixes, doctor examines the hosts again and reports what it finds then.
        done = hosts.mccl("doctor", *ALL, "--fix", "--yes", cwd=tmp_path)
        assert "on b: ip link set c0 up\n" in done.stderr
        before, after = done.stdout.split("Checked again:")
        assert "faults found: " in before and after.endswith("no faults found\n")
        assert look(hosts, sound=True) == []
        undo = hosts.on("desk", "sh", tmp_path / "mccl-doctor.undo.sh")
        assert subprocess.run(undo, capture_output=True).returncode == 0
        assert "c: the MTU of c2 is 1000" in look(hosts)
    finally:
        hosts.ip("b", "link", "set", "c0", "up")
        hosts.ip("c", "link", "set", "c2", "mtu", 1500)


@needs_hosts
def test_verbose_reports_every_trial(hosts: CabledHosts):
    done = hosts.mccl("doctor", *ALL, "--verbose")
    assert "mccl doctor: a: being queried with ssh\n" in done.stderr
    dials = [line for line in done.stderr.splitlines() if '"do":"dial"' in line]
    assert any(
        line.startswith("mccl doctor: a: ") and '"from":"10.81.0.1"' in line
        and '"to":"10.81.0.2"' in line for line in dials
    )  # fmt: skip
