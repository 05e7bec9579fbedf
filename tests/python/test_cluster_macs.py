"""`mccl config` and `mccl doctor` on hosts that answer like recorded Macs."""

import json
import subprocess
from pathlib import Path

import pytest
import ssh_hosts
from launching import environment, program
from mac_hosts import OLD_IDLE, MacHosts

pytestmark = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
TRIANGLE = [("a", 1, "b", 2), ("b", 1, "c", 2), ("c", 1, "a", 2)]
ALL = ("--hosts", "a,b,c")


@pytest.fixture(scope="module")
def macs():
    """Three Macs, pairwise joined by Thunderbolt 5 cables. A second cable joins a and b."""
    with MacHosts(3, [*TRIANGLE, ("a", 3, "b", 4)]) as made:
        yield made


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_a_mesh_with_rdma_is_for_jaccl(macs: MacHosts, tmp_path: Path):
    file = tmp_path / "hosts.json"
    done = macs.mccl("config", *ALL, "--output", file)
    assert read(file)["backend"] == "jaccl"
    assert [h["ips"] for h in read(file)["hosts"]] == [[macs.address(n)] for n in "abc"]
    assert [h["rdma"] for h in read(file)["hosts"]] == [
        [None, ["rdma_en2", "rdma_en4"], "rdma_en3"],
        [["rdma_en3", "rdma_en5"], None, "rdma_en2"],
        ["rdma_en2", "rdma_en3", None],
    ]
    checked = subprocess.run(
        [program(), "launch", "--check", file], capture_output=True, text=True, env=environment()
    )
    assert checked.returncode == 0, checked.stderr
    assert done.stdout.count("80 Gbit/s") == 4
    assert macs.log("a") == []


def test_a_ring_is_set_up_and_undone(macs: MacHosts, tmp_path: Path):
    file = tmp_path / "hosts.json"
    before = [macs.addresses(name) for name in macs.names]
    macs.mccl("config", *ALL, "--backend", "ring", "--output", file, "--auto-setup", "--yes")
    assert read(file)["backend"] == "ring"
    for name, host in zip("abc", read(file)["hosts"], strict=True):
        assert len(host["ips"]) == 2
        assert all(f" {ip}/30 " in macs.addresses(name) for ip in host["ips"])
    log = macs.log("a")
    assert any("inet 192.168.0.1 netmask 255.255.255.252 alias" in line for line in log)
    assert any(line.startswith("route -n add -host ") for line in log)
    undo = subprocess.run(macs.on("desk", "sh", f"{file}.undo.sh"), capture_output=True, text=True)
    assert undo.returncode == 0, undo.stderr
    assert [macs.addresses(name) for name in macs.names] == before


@pytest.mark.long
def test_a_refusal_leaves_nothing_half_done(macs: MacHosts, tmp_path: Path):
    before = [macs.addresses(name) for name in macs.names]
    refuses = macs.programs("c") / "refuses"
    refuses.write_text("en3\n")
    try:
        done = macs.mccl(
            "config", *ALL, "--backend", "ring", "--output", tmp_path / "hosts.json",
            "--auto-setup", "--yes", status=1,
        )  # fmt: skip
    finally:
        refuses.unlink()
    assert "ended with status 5: denied" in done.stderr
    assert [macs.addresses(name) for name in macs.names] == before


def test_the_bridge_is_taken_down_and_put_back(tmp_path: Path):
    with MacHosts(2, [("a", 1, "b", 1)]) as macs:
        macs.macs["a"].bridged = {1}
        said = macs.macs["a"].ifconfig(macs.address("a"))
        (macs.programs("a") / "ifconfig.txt").write_text(said)
        file = tmp_path / "hosts.json"
        found = macs.mccl("doctor", "--hosts", "a,b", "--json", status=1)
        texts = [f["what"] for f in json.loads(found.stdout)["findings"]]
        assert "en2 (Thunderbolt port 1) is a member of bridge0" in texts
        macs.mccl(
            "config",
            "--hosts",
            "a,b",
            "--backend",
            "ring",
            "--output",
            file,
            "--auto-setup",
            "--yes",
        )
        assert macs.log("a")[0] == "ifconfig bridge0 down"
        undo = macs.on("desk", "sh", f"{file}.undo.sh")
        assert subprocess.run(undo, capture_output=True).returncode == 0
        assert macs.log("a")[-1] == "ifconfig bridge0 up"


def test_a_missing_cable_is_named_with_the_free_ports():
    with MacHosts(4, [("a", 1, "b", 2), ("b", 1, "c", 2), ("c", 1, "d", 2)]) as macs:
        done = macs.mccl("config", "--hosts", "a,b,c,d", "--backend", "jaccl-ring", status=1)
        free = "from a to d (port 2 of a is free, port 1 of d is free)"
        assert f"this cable would complete a ring: {free}" in done.stderr
        mesh = macs.mccl("config", "--hosts", "a,b,c,d", "--backend", "jaccl", status=1)
        assert "3 pairs of hosts have no cable" in mesh.stderr


def test_thunderbolt_4_has_no_rdma_and_a_dock_is_looked_behind():
    cables = [("a", 1, "b", 2, "40 Gb/s", True)]
    with MacHosts(2, cables, idle=OLD_IDLE) as macs:
        for name in "ab":
            (macs.programs(name) / "ibv_devices.txt").write_text("device node GUID\n")
        done = macs.mccl("config", "--hosts", "a,b", "--json")
        answer = json.loads(done.stdout)
        assert answer["hostfile"]["backend"] == "ring"
        assert [link["mbit_per_s"] for link in answer["links"]] == [40000]
        found = json.loads(macs.mccl("doctor", "--hosts", "a", "--json").stdout)["findings"]
        assert "the host's Thunderbolt is version 4 or older" in [f["what"] for f in found]
        jaccl = macs.mccl("config", "--hosts", "a,b", "--backend", "jaccl", status=1)
        assert "some ends of cables have no RDMA device" in jaccl.stderr


@pytest.mark.parametrize(
    "said",
    [
        "{",
        '{"SPThunderboltDataType": [3, {}, null]}',
        "\x00\xff\xfe",
        *(
            pytest.param(said, marks=pytest.mark.long)
            for said in (
                "",
                "[]",
                '{"SPThunderboltDataType": 3}',
                '{"SPThunderboltDataType":'
                ' [{"receptacle_1_tag": {"receptacle_id_key": 5}, "_items": 7}]}',
                "[" * 100_000,
                "Es gibt keine Daten\n" * 1000,
            )
        ),
    ],
)
def test_odd_output_is_no_crash(macs: MacHosts, said: str):
    file = macs.programs("b") / "system_profiler.txt"
    good = file.read_text()
    file.write_bytes(said.encode("latin-1"))
    try:
        done = macs.mccl("config", *ALL, "--over", "thunderbolt", "--json", status=1)
    finally:
        file.write_text(good)
    answer = json.loads(done.stdout)
    assert [link["ends"][0]["host"] + link["ends"][1]["host"] for link in answer["links"]] == ["ac"]
