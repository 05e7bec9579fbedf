"""`mccl config` on hosts joined by cables, each with a real sshd."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
import ssh_hosts
from cabled_hosts import CabledHosts
from launching import program, run

pytestmark = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
ALL = ("--hosts", "a,b,c,d")


@pytest.fixture(scope="module")
def ring():
    """Four hosts in a ring of cables, with a second cable between the first two."""
    with CabledHosts(4, [*RING, ("a", "b")]) as made:
        yield made


def entries(path: Path) -> list[dict]:
    return json.loads(path.read_text())["hosts"]


def all_addresses(hosts: CabledHosts) -> list[str]:
    return [hosts.addresses(name) for name in hosts.names]


def job(hosts: CabledHosts, hostfile: Path) -> subprocess.CompletedProcess[str]:
    """Runs a short benchmark on the hosts of the file, over TCP."""
    return run(
        "--ssh-arg=-F", "--ssh-arg", hosts.config, "--hostfile", hostfile,
        "--env", "MCCL_TRANSPORT=tcp", "--env", "MCCL_LOG_LEVEL=INFO",
        program(), "bench", "all_reduce", "--sizes", "1K", "--no-bounds", "--seconds", "0.01",
        before=hosts.on("desk"),
    )  # fmt: skip


def undo(hosts: CabledHosts, script: Path) -> None:
    done = subprocess.run(hosts.on("desk", "sh", script), capture_output=True, text=True)
    assert done.returncode == 0, done


def test_from_a_heap_of_cables_to_a_job_and_back(ring: CabledHosts, tmp_path: Path):
    file = tmp_path / "hosts.json"
    before = all_addresses(ring)
    done = ring.mccl("config", *ALL, "--output", file, "--auto-setup", "--yes")
    assert [entry["ssh"] for entry in entries(file)] == ["a", "b", "c", "d"]
    # Two cables join a and b. MLX needs the same number of addresses for every host, so the other
    # hosts list theirs twice.
    assert [len(set(entry["ips"])) for entry in entries(file)] == [1, 2, 1, 1]
    assert [len(entry["ips"]) for entry in entries(file)] == [2, 2, 2, 2]
    for name, entry in zip("abcd", entries(file), strict=True):
        assert all(f" {ip}/30 " in ring.addresses(name) for ip in entry["ips"])
    assert len(re.findall(r"^[abcd] 192\.168\.\S+ +[abcd] .* us .*bit/s$", done.stdout, re.M)) == 10
    ran = job(ring, file)
    assert "4 ranks" in ran.stdout
    assert len(set(re.findall(r"the cable between .*?\)[^)]*\)", ran.stderr))) == 5
    undo(ring, tmp_path / "hosts.json.undo.sh")
    assert all_addresses(ring) == before


@pytest.mark.long
def test_a_cable_that_was_just_plugged_in(ring: CabledHosts):
    """The link-local addresses of a new cable cannot be used as a source for a second or two."""
    for name in ("a", "b"):
        ring.ip(name, "link", "set", "c4", "down")
    for name in ("a", "b"):
        ring.ip(name, "link", "set", "c4", "up")
    done = ring.mccl("config", *ALL)
    assert len(re.findall(r"ip addr add \S+ dev", done.stdout)) == 10
    assert done.stdout.count("dev c4") == 2


@pytest.mark.long
def test_the_way_to_the_desk_is_not_taken_for_a_silent_cable():
    """A chain of hosts without a common network. Each has its own network with the desk."""
    with CabledHosts(3, [("a", "b"), ("b", "c")], apart=True) as hosts:
        done = hosts.mccl("config", "--hosts", "a,b,c", "--json")
    assert [f["id"] for f in json.loads(done.stdout)["findings"]] == ["no-ring"]


def test_nothing_is_changed_unless_it_is_asked_for(ring: CabledHosts):
    before = all_addresses(ring)
    done = ring.mccl("config", *ALL)
    assert "ip addr add 192.168.0.1/30 dev c0" in done.stdout
    assert '"ips"' in done.stdout
    assert all_addresses(ring) == before


@pytest.mark.long
def test_addresses_in_use_are_left_alone(ring: CabledHosts):
    ring.ip("c", "addr", "add", "192.168.7.1/16", "dev", "lo")
    ring.ip("d", "route", "add", "172.16.0.0/29", "dev", "cable")
    try:
        done = ring.mccl("config", *ALL)
    finally:
        ring.ip("c", "addr", "del", "192.168.7.1/16", "dev", "lo")
        ring.ip("d", "route", "del", "172.16.0.0/29", "dev", "cable")
    added = re.findall(r"ip addr add (\S+) dev", done.stdout)
    assert len(added) == 10
    assert "172.16.0.9/30" in added and not any(each.startswith("192.168.") for each in added)


def test_addresses_that_are_there_are_kept(ring: CabledHosts, tmp_path: Path):
    for number in (0, 1, 2, 3, 4):
        ring.ip(ring.cables[number][0], "addr", "add", f"10.5.{number}.1/24", "dev", f"c{number}")
        ring.ip(ring.cables[number][1], "addr", "add", f"10.5.{number}.2/24", "dev", f"c{number}")
    try:
        done = ring.mccl(
            "config", *ALL, "--output", tmp_path / "hosts.json", "--auto-setup", "--yes"
        )
        assert "ip addr add" not in done.stdout + done.stderr
        assert entries(tmp_path / "hosts.json")[2]["ips"] == ["10.5.1.2"] * 2
        assert not (tmp_path / "hosts.json.undo.sh").exists()
    finally:
        for name in ring.names:
            for cable in (0, 1, 2, 3, 4):
                if name in ring.cables[cable]:
                    ring.ip(name, "-4", "addr", "flush", "dev", f"c{cable}")


def test_a_network_that_all_are_in(ring: CabledHosts, tmp_path: Path):
    file = tmp_path / "hosts.json"
    ring.mccl("config", *ALL, "--over", "ethernet", "--output", file, "--env", "WHO=me")
    assert [entry["ips"] for entry in entries(file)] == [[ring.address(n)] for n in "abcd"]
    assert json.loads(file.read_text())["envs"] == ["WHO=me"]
    assert "4 ranks" in job(ring, file).stdout


def test_what_the_hostfile_says_of_a_host_is_kept(ring: CabledHosts, tmp_path: Path):
    given = tmp_path / "given.json"
    given.write_text(
        json.dumps([{"ssh": "a", "slots": 2, "python": "/usr/bin/python3"}, {"ssh": "b"}])
    )
    file = tmp_path / "hosts.json"
    ring.mccl("config", "--hostfile", given, "--over", "ethernet", "--output", file)
    assert entries(file)[0]["slots"] == 2
    assert entries(file)[0]["python"] == "/usr/bin/python3"


def test_a_failing_command_leaves_nothing_half_done(ring: CabledHosts, tmp_path: Path):
    """Assigning the second address of c fails."""
    programs = tmp_path / "bin"
    programs.mkdir()
    counted = tmp_path / "counted"
    fake = programs / "ip"
    fake.write_text(
        "#!/bin/sh\n"
        f'case "$*" in "addr add"*) echo x >> {counted}\n'
        f'  [ "$(wc -l < {counted})" -gt 1 ] && {{ echo "no more of these" >&2; exit 7; }};;\n'
        "esac\n"
        'exec /sbin/ip "$@"\n'
    )
    fake.chmod(0o755)
    before = all_addresses(ring)
    ring.with_programs("c", programs)
    try:
        done = ring.mccl(
            "config", *ALL, "--output", tmp_path / "hosts.json", "--auto-setup", "--yes", status=1
        )
    finally:
        ring.sshd_options.clear()
        ring.serve_again("c")
    assert "status 7: no more of these" in done.stderr
    assert "are undone, and nothing is changed" in done.stderr
    assert all_addresses(ring) == before
    assert not (tmp_path / "hosts.json").exists()
    undo_script = (tmp_path / "hosts.json.undo.sh").read_text()
    assert undo_script.count("ip addr del") == 10


def test_a_cut_cable_leaves_no_ring_and_is_named(ring: CabledHosts):
    ring.ip("c", "link", "set", "c2", "down")
    try:
        done = ring.mccl("config", *ALL, "--over", "cables", "--backend", "ring", status=1)
        picture = ring.mccl("config", *ALL, "--over", "cables", "--json")
    finally:
        ring.ip("c", "link", "set", "c2", "up")
    assert "no ring of cables goes through all hosts" in done.stderr
    assert "this cable would complete a ring: from c to d" in done.stderr
    # Without one of MLX's backends, a chain of cables is enough.
    answer = json.loads(picture.stdout)
    assert "backend" not in answer["hostfile"]
    assert len(answer["links"]) == 4


def test_a_host_that_does_not_answer(ring: CabledHosts, tmp_path: Path):
    ring.pull("d")
    try:
        extra = ("--ssh-arg=-o", "--ssh-arg=ConnectTimeout=2")
        done = ring.mccl("config", *ALL, *extra, status=1)
        assert re.search(r"^  d: .*is it switched on", done.stderr, re.M)
        file = tmp_path / "hosts.json"
        ring.mccl("config", *ALL, *extra, "--ignore-unreachable", "--output", file,
                  "--over", "ethernet")  # fmt: skip
        assert [entry["ssh"] for entry in entries(file)] == ["a", "b", "c"]
    finally:
        ring.plug_in("d")


@pytest.fixture
def dot(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Graphviz's `dot`, which prints its flags and its input."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "dot").write_text('#!/bin/sh\necho "<svg $*>"; exec cat\n')
    (folder / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder / "dot"


@pytest.mark.long
def test_pictures(ring: CabledHosts, dot: Path):
    words = ("config", *ALL, "--over", "cables")
    graph = ring.mccl(*words, "--dot").stdout
    assert graph.startswith("graph cluster {") and graph.count(" -- ") == 5 + 4
    assert ring.mccl(*words, "--svg").stdout == "<svg -Tsvg>\n" + graph
    dot.write_text("#!/bin/sh\ncat > /dev/null; exit 3\n")
    assert "dot -Tsvg failed" in ring.mccl(*words, "--svg", status=1).stderr


def test_a_picture_without_graphviz(tmp_path: Path):
    done = subprocess.run(
        [program(), "config", "--hosts", "a", "--svg"],
        capture_output=True, text=True, env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1 and "apt install graphviz" in done.stderr


@pytest.mark.parametrize(
    "said",
    [
        "",
        pytest.param("exit 3", marks=pytest.mark.long),
        "head -c 100000 /dev/urandom",
        pytest.param("yes | head -c 20000000", marks=pytest.mark.long),
        pytest.param("echo Grüß Gott; env", marks=pytest.mark.long),
    ],
    ids=["nothing", "failure", "garbage", "too much", "words"],
)
def test_odd_hosts_are_reported(ring: CabledHosts, tmp_path: Path, said: str):
    """Several programs of one host print the same odd output."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("nvidia-smi", "python3", "sudo"):
        (programs / name).write_text(f"#!/bin/sh\n{said}\n")
        (programs / name).chmod(0o755)
    ring.with_programs("b", programs)
    try:
        done = subprocess.run(
            [*ring.on("desk", program(), "config", "--ssh-arg=-F", "--ssh-arg", ring.config, *ALL)],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
        )  # fmt: skip
    finally:
        ring.sshd_options.clear()
        ring.serve_again("b")
    assert done.returncode in (0, 1), done
    assert b"mccl config: b: " in done.stderr, done.stderr[-2000:]


def test_a_program_that_hangs_is_given_up(ring: CabledHosts, tmp_path: Path):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    ring.with_programs("b", tmp_path)
    try:
        done = ring.mccl("config", *ALL, "--patience", 8)
    finally:
        ring.sshd_options.clear()
        ring.serve_again("b")
    assert "warning: b: nvidia-smi does not end" in done.stderr


@pytest.mark.long
def test_a_host_that_hangs_is_given_up(ring: CabledHosts, tmp_path: Path):
    hangs = """
def answered(answer):
    if "told" in answer: time.sleep(1000)
    return [answer]
"""
    begin = time.monotonic()
    with ring.with_odd_probe("b", tmp_path, hangs):
        done = ring.mccl("config", *ALL, "--patience", 10, status=1)
    assert time.monotonic() - begin < 60
    assert "b: the host did not report all its facts in 10 s; it was busy with " in done.stderr


@pytest.mark.usefixtures("dot")
def test_a_picture_is_all_that_is_done(ring: CabledHosts, tmp_path: Path):
    """Like MLX's --dot, the option prints a picture and exits."""
    before = all_addresses(ring)
    for flag, begin in (("--dot", "graph cluster {"), ("--svg", "<svg ")):
        done = ring.mccl("config", *ALL, flag, "--no-auto-setup", cwd=tmp_path)
        assert done.stdout.startswith(begin) and "us " not in done.stderr
        for more in (("--auto-setup",), ("--output", tmp_path / "hosts.json")):
            refused = ring.mccl("config", *ALL, flag, *more, status=2, cwd=tmp_path)
            assert f"{flag} prints a picture and does nothing else" in refused.stderr
    assert all_addresses(ring) == before and not list(tmp_path.iterdir())


@pytest.mark.long
def test_mlx_reads_the_hostfile(ring: CabledHosts, tmp_path: Path):
    common = pytest.importorskip("mlx._distributed_utils.common")
    file = tmp_path / "hosts.json"
    ring.mccl("config", *ALL, "--output", file, "--env", "WHO=me")
    theirs = common.Hostfile.from_file(file)
    assert (theirs.backend, theirs.envs) == ("ring", ["WHO=me"])
    assert [host.ssh_hostname for host in theirs.hosts] == ["a", "b", "c", "d"]
    # MLX's ring pairs the k-th address of a host with the k-th address of the next one, so all
    # hosts need the same number of addresses.
    assert [len(host.ips) for host in theirs.hosts] == [2, 2, 2, 2]
    assert all(host.rdma == [] for host in theirs.hosts)


def test_help_teaches():
    done = subprocess.run([program(), "config", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    flags = "hosts hostfile over backend output-hostfile output auto-setup no-auto-setup dot svg "
    flags += "json env ignore-unreachable verbose user ssh-arg patience"
    assert [flag for flag in flags.split() if f"--{flag}" not in done.stdout] == []


@pytest.mark.parametrize(
    "flags", [("--over", "air"), ("--backend", "nccl"), ("--hosts", "a b"), ("--dott",)]
)
def test_bad_arguments(flags: tuple):
    done = subprocess.run([program(), "config", *flags], capture_output=True, text=True)
    assert done.returncode == 2
