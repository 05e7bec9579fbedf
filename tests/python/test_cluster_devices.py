"""RDMA, Wi-Fi, tunnels, Thunderbolt on Linux and GPUs: recorded devices behind a real sshd."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import ssh_hosts
from cabled_hosts import CabledHosts
from linux_devices import NO_LINK_LAYER, Devices
from mac_hosts import IDLE, Mac, uuid

pytestmark = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
PAIR = ("--hosts", "a,b")
SMI = """
case "$*" in
  *query-gpu*) for i in 0 1; do echo "NVIDIA H100 80GB HBM3, 81559, 570.124.06"; done ;;
  *p2p*) printf ' \\tGPU0\\tGPU1\\t\\n GPU0\\tX\\t{peer}\\t\\n GPU1\\t{peer}\\tX\\t\\n'
         printf '\\nLegend:\\n\\n'
         printf '  X    = Self\\n  OK   = Status Ok\\n  CNS  = Chipset not supported\\n' ;;
  *) printf '\\t\\033[4mGPU0\\tGPU1\\tNIC0\\tCPU Affinity\\033[0m\\n'
     printf 'GPU0\\t X \\t{link}\\tPHB\\t0-31\\nGPU1\\t{link}\\t X \\tPHB\\t0-31\\n'
     printf 'NIC0\\tPHB\\tPHB\\t X\\n'
     printf '\\nLegend:\\n\\n  NV#  = Connection traversing a bonded set of # NVLinks\\n' ;;
esac
"""


@pytest.fixture
def pair() -> Iterator[CabledHosts]:
    """Two hosts joined by two cables, which have addresses."""
    with CabledHosts(2, [("a", "b"), ("a", "b")]) as made:
        made.give_addresses()
        yield made


def findings(done: subprocess.CompletedProcess[str]) -> list[str]:
    found = json.loads(done.stdout)["findings"]
    return [f"{f['severity']}: {f['where']}: {f['what']}" for f in found]


def faults(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [each for each in findings(done) if not each.startswith("note")]


def ethernet(folder: Path) -> Devices:
    """Returns a /sys/class that shows the interfaces of `pair` as Ethernet devices."""
    devices = Devices(folder)
    for name in ("cable", "c0", "c1"):
        devices.interface(name, speed=-1)
    return devices


def with_scripts(hosts: CabledHosts, name: str, folder: Path, **texts: str) -> None:
    folder.mkdir()
    for file, text in texts.items():
        (folder / file).write_text("#!/bin/sh\n" + text)
        (folder / file).chmod(0o755)
    hosts.with_programs(name, folder)


def test_rdma_devices(pair: CabledHosts, tmp_path: Path):
    devices = ethernet(tmp_path / "sys")
    devices.rdma("mlx5_0", "c0")
    devices.rdma("mlx5_1", "c1", state="1: DOWN")
    pair.before_sshd["b"] = ("prlimit", "--memlock=65536:65536")
    devices.show_to(pair, "b")
    done = pair.mccl("doctor", *PAIR, "--json", status=1)
    assert faults(done) == [
        "problem: b: a process may lock 64 KiB of memory",
        "warning: b: the port of mlx5_1 is DOWN although c1 is up",
    ]
    rdma = json.loads(done.stdout)["hosts"][1]["rdma"]
    assert [device["mbit_per_s"] for device in rdma] == [100_000, 100_000]
    assert [len(device["gids"]) for device in rdma] == [1, 1]


def test_wifi_and_a_tunnel_where_there_is_a_cable(pair: CabledHosts, tmp_path: Path):
    devices = Devices(tmp_path / "sys")
    devices.interface("cable", wifi=True)
    devices.interface("c0", speed=-1)
    devices.interface("c1", kind=NO_LINK_LAYER)
    devices.show_to(pair, "b")
    for address, what in ((pair.address("b"), "cable (Wi-Fi)"),
                          ("10.81.1.2", "c1 (a tunnel or a bridge)")):  # fmt: skip
        file = tmp_path / "desk.json"
        file.write_text(json.dumps([{"ssh": "a"}, {"ssh": "b", "ips": [address]}]))
        found = faults(pair.mccl("doctor", "--hostfile", file, "--json", status=1))
        assert found == [
            f"warning: b: the hostfile selects {address}, which is {what}, "
            "although the host has a cable: c0"
        ]


def test_a_cable_that_is_slower_than_its_hardware(pair: CabledHosts, tmp_path: Path):
    for name in "ab":
        devices = Devices(tmp_path / name)
        devices.interface("cable", speed=-1)
        devices.interface("c0", speed=400_000)
        devices.interface("c1", speed=-1)
        devices.show_to(pair, name)
    found = faults(pair.mccl("doctor", *PAIR, "--json", status=1))
    assert len(found) == 2
    assert all("(c0) to " in each for each in found)
    assert all("but its hardware supports 400 Gbit/s" in each for each in found)


def test_thunderbolt_of_linux(pair: CabledHosts, tmp_path: Path):
    """Each end names the other computer but no port.

    Calls by mccl over the cables tell them apart.
    """
    for name, other in (("a", "b"), ("b", "a")):
        devices = Devices(tmp_path / name)
        devices.interface("cable")
        # Host b lists its cables in the reverse order.
        for number, cable in enumerate(("c0", "c1") if name == "a" else ("c1", "c0")):
            devices.thunderbolt(cable, f"host-{name}", f"host-{other}", number + 1)
        devices.show_to(pair, name)
    answer = json.loads(pair.mccl("config", *PAIR, "--json").stdout)
    ends = [[end["interface"] for end in link["ends"]] for link in answer["links"]]
    assert ends == [["c0", "c0"], ["c1", "c1"]]
    assert {link["kind"] for link in answer["links"]} == {"Thunderbolt"}
    assert {link["mbit_per_s"] for link in answer["links"]} == {40_000}
    assert answer["setup"] == []  # existing addresses are kept


@pytest.mark.long
def test_a_mac_and_a_linux_machine(pair: CabledHosts, tmp_path: Path):
    """Macs write the UUIDs of ports in capitals, Linux writes them in lower case."""
    for name in "ab":
        pair.ip(name, "-4", "addr", "flush", "dev", "c0")
    mac = Mac("a", 2, IDLE)
    mac.peers[1] = ("b", 1, "40 Gb/s", False)
    folder = tmp_path / "mac"
    mac.write(folder, pair.address("a"))
    (folder / "cables").write_text("en2 c0\n")
    pair.sshd_options["a"] = ("-o", f"SetEnv=PATH={folder}:{os.environ['PATH']}")
    pair.serve_again("a")
    devices = Devices(tmp_path / "linux")
    devices.interface("cable")
    devices.thunderbolt("c0", uuid("b", 1).lower(), uuid("a", 1).lower())
    devices.show_to(pair, "b")
    file = tmp_path / "hosts.json"
    done = pair.mccl("config", *PAIR, "--output", file, "--auto-setup", "--yes")
    assert "a     en2        to  b     c0         Thunderbolt  40 Gbit/s" in done.stdout
    assert "a: ifconfig en2 inet 192.168.0.1 netmask 255.255.255.252 alias" in done.stderr
    assert "b: ip addr add 192.168.0.2/30 dev c0" in done.stderr
    assert [h["ips"] for h in json.loads(file.read_text())["hosts"]] == [
        ["192.168.0.1"], ["192.168.0.2"]
    ]  # fmt: skip
    undo = subprocess.run(pair.on("desk", "sh", f"{file}.undo.sh"), capture_output=True, text=True)
    assert undo.returncode == 0, undo.stderr
    assert "192.168" not in pair.addresses("a") + pair.addresses("b")


@pytest.mark.long
def test_thunderbolt_that_joins_only_some_is_not_all_there_is(tmp_path: Path):
    with CabledHosts(3, [("a", "b")]) as hosts:
        for name, other in (("a", "b"), ("b", "a")):
            devices = Devices(tmp_path / name)
            devices.interface("cable")
            devices.thunderbolt("c0", f"host-{name}", f"host-{other}")
            devices.show_to(hosts, name)
        done = hosts.mccl("config", "--hosts", "a,b,c", "--json")
        answer = json.loads(done.stdout)
        assert [h["ips"] for h in answer["hostfile"]["hosts"]] == [
            [hosts.address(name)] for name in "abc"
        ]
        assert any("no ring of cables" in each for each in findings(done))
        refused = hosts.mccl("config", "--hosts", "a,b,c", "--over", "thunderbolt", status=1)
        assert "no ring of cables goes through all hosts" in refused.stderr


@pytest.mark.parametrize(
    ("peer", "link", "expected"),
    [
        pytest.param("OK", "NV18", [], marks=pytest.mark.long),
        ("OK", "PHB", ["note: b: no NVLink joins the 2 GPUs of this host"]),
        ("CNS", "NV18", ["warning: b (GPUs 0 and 1): 1 pair of GPUs cannot read each other's "
                         "memory: the chipset does not support peer access"]),
        pytest.param(
            "NS", "NV18", ["note: b (GPUs 0 and 1): 1 pair of GPUs cannot read each other's "
                           "memory: peer access is not supported"],
            marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
def test_gpus(pair: CabledHosts, tmp_path: Path, peer: str, link: str, expected: list[str]):
    smi = SMI.format(peer=peer, link=link)
    with_scripts(pair, "b", tmp_path / "bin", **{"nvidia-smi": smi})
    bad = any(each.startswith("warning") for each in expected)
    done = pair.mccl("doctor", *PAIR, "--json", status=1 if bad else 0)
    assert [each for each in findings(done) if "GPU" in each] == expected
    assert len(json.loads(done.stdout)["hosts"][1]["gpus"]) == 2


def test_a_driver_that_does_not_answer(pair: CabledHosts, tmp_path: Path):
    smi = 'echo "NVIDIA-SMI has failed: it cannot communicate with the NVIDIA driver."; exit 9'
    with_scripts(pair, "b", tmp_path / "bin", **{"nvidia-smi": smi})
    found = faults(pair.mccl("doctor", *PAIR, "--json", status=1))
    assert len(found) == 1 and "NVIDIA-SMI has failed" in found[0]


def test_versions_of_mccl_and_nccl_that_differ(pair: CabledHosts, tmp_path: Path):
    old = """
def answered(answer):
    if "told" in answer: answer["told"]["versions"]["mccl"] = "0.0.9"
    return [answer]
"""
    for name, version in (("a", "2.27.3"), ("b", "2.21.5")):
        fake = tmp_path / name
        fake.write_text(f"#!/bin/sh\necho nvidia-nccl-cu12 {version}\n")
        fake.chmod(0o755)
    file = tmp_path / "desk.json"
    file.write_text(json.dumps([{"ssh": n, "python": str(tmp_path / n)} for n in "ab"]))
    (tmp_path / "bin").mkdir()
    with pair.with_odd_probe("b", tmp_path / "bin", old):
        done = pair.mccl("doctor", "--hostfile", file, "--json", status=1)
    assert "make wheel" in json.loads(done.stdout)["findings"][0]["cure"]
    assert [each.split(": ", 2)[2] for each in faults(done)] == [
        "versions of mccl differ", "versions of nvidia-nccl-cu12 differ",
    ]  # fmt: skip
