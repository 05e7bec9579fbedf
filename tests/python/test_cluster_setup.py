"""`mccl config --auto-setup` asks first, chooses unused networks, and cuts no host off."""

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ssh_hosts
from cabled_hosts import CabledHosts
from launching import PATIENCE, environment, program

pytestmark = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
PAIR = ("--hosts", "a,b", "--over", "cables", "--auto-setup")
without_netplan = pytest.mark.skipif(
    Path("/etc/netplan").exists(), reason="netplan owns the configuration of this machine"
)
NETWORKD = "/lib/systemd/systemd-networkd"


@pytest.fixture
def pair() -> Iterator[CabledHosts]:
    """Two hosts joined by a cable without addresses."""
    with CabledHosts(2, [("a", "b")]) as made:
        yield made


def added(text: str) -> list[str]:
    return re.findall(r"ip addr add (\S+) dev", text)


def addresses(hosts: CabledHosts) -> list[str]:
    return [hosts.addresses(name) for name in hosts.names]


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def put_program(hosts: CabledHosts, name: str, folder: Path, file: str, text: str) -> None:
    """Puts a shell script into `folder` as the program `file`, first in the PATH of the host."""
    folder.mkdir(exist_ok=True)
    (folder / file).write_text("#!/bin/sh\n" + text)
    (folder / file).chmod(0o755)
    hosts.with_programs(name, folder)


def test_auto_setup_asks_before_it_changes_anything(pair: CabledHosts, tmp_path: Path):
    before = addresses(pair)
    done = pair.mccl("config", *PAIR, status=1, cwd=tmp_path)
    assert "on a:\n  ip addr add 192.168.0.1/30 dev c0" in done.stderr
    assert "no answer could be read from standard input; pass --yes" in done.stderr
    command = pair.on("desk", program(), "config", "--ssh-arg=-F", "--ssh-arg", pair.config, *PAIR)
    answers = {"n\n": 1, "maybe\n": 1, "y\n": 0}
    for answer, status in answers.items():
        assert addresses(pair) == before
        done = subprocess.run(
            command, input=answer, capture_output=True, text=True, cwd=tmp_path,
            timeout=PATIENCE, env=environment(),
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        assert ("nothing was changed: you did not agree" in done.stderr) == bool(status)
    assert " 192.168.0.1/30 " in pair.addresses("a")


@pytest.mark.long
def test_the_operators_network_is_not_used(pair: CabledHosts, tmp_path: Path):
    """The operator's address is 192.168.0.2, behind a router.

    No route of a host shows its network.
    """
    pair._must("ip", "-n", pair.space("desk"), "addr", "add", "192.168.0.2/32", "dev", "net")
    for name in pair.names:
        pair.ip(name, "route", "add", "default", "via", "10.78.0.100")
    text = pair.config.read_text()
    pair.config.write_text("BindAddress 192.168.0.2\n" + text)
    done = pair.mccl("config", *PAIR, "--yes", "--output", tmp_path / "hosts.json")
    given = added(done.stderr)
    assert len(set(given)) == 2 and not [each for each in given if each.startswith("192.168.0.")]
    # The desk still reaches the hosts.
    pair.mccl("config", *PAIR[:4])


def test_networks_that_hosts_or_the_desk_use_are_not_chosen(pair: CabledHosts):
    """A network counts as used if it is that of a neighbour, of a routing table, or of the desk."""
    pair.ip("a", "neigh", "add", "192.168.0.9", "lladdr", "2:0:0:0:0:1", "dev", "cable")
    pair.ip("b", "route", "add", "192.168.1.0/25", "dev", "cable", "table", "77")
    pair._must("ip", "-n", pair.space("desk"), "addr", "add", "192.168.1.130/25", "dev", "net")
    done = pair.mccl("config", *PAIR[:4])
    assert added(done.stdout) == ["192.168.2.1/30", "192.168.2.2/30"]


def test_the_networks_can_be_chosen(pair: CabledHosts):
    chosen = pair.mccl("config", *PAIR[:4], "--subnet", "10.99.8.0/24")
    assert added(chosen.stdout) == ["10.99.8.1/30", "10.99.8.2/30"]
    pair.ip("b", "addr", "add", "10.99.8.7/24", "dev", "lo")
    taken = pair.mccl("config", *PAIR[:4], "--subnet", "10.99.8.0/24", status=1)
    assert "free in 10.99.8.0/24: 10.99.8.7/24 is an address of b" in taken.stderr


@pytest.mark.parametrize(
    ("network", "complaint"),
    [
        ("10.99", "is not a network; expected one such as"),
        ("10.99.0.0", "is not a network; expected one such as"),
        ("10.99.0.1/16", "did you mean 10.99.0.0/16?"),
        ("8.8.0.0/16", "is not private"),
        ("10.99.0.0/31", "too small"),
    ],
)
def test_a_network_that_cannot_be_chosen(network: str, complaint: str):
    done = subprocess.run(
        [program(), "config", "--subnet", network], capture_output=True, text=True
    )
    assert done.returncode == 2 and complaint in done.stderr


@pytest.mark.long
def test_a_host_that_is_cut_off_undoes_its_part(pair: CabledHosts, tmp_path: Path):
    """A step of the set-up cuts off b, as an address in the operator's network would."""
    before = addresses(pair)
    cuts = 'case "$*" in "addr add"*) /sbin/ip "$@"; exec /sbin/ip link set cable down ;; esac\n'
    put_program(pair, "b", tmp_path / "bin", "ip", cuts + 'exec /sbin/ip "$@"')
    done = pair.mccl(
        "config", *PAIR, "--yes", "--revert-after", 3, "--output", tmp_path / "hosts.json", status=1
    )
    assert "b: " in done.stderr and "did not end in 3 s" in done.stderr
    assert not (tmp_path / "hosts.json").exists()
    until(lambda: " 192.168." not in pair.addresses("b"))
    assert " 192.168." not in pair.addresses("a")
    pair.ip("b", "link", "set", "cable", "up")
    assert addresses(pair) == before


@pytest.mark.long
def test_new_connections_must_be_possible_afterwards(pair: CabledHosts, tmp_path: Path):
    """An existing connection keeps working, but b refuses new ones."""
    before = addresses(pair)
    pair.sshd_options["b"] = ("-o", "MaxSessions=10")
    refuses = tmp_path / "refuses"
    text = pair.config.read_text()
    pair.config.write_text(
        f"Match host b exec \"test -e {refuses}\"\n  Port 1\n{text}"
    )  # fmt: skip
    put_program(
        pair, "b", tmp_path / "bin", "ip",
        f'case "$*" in "addr add"*) touch {refuses} ;; esac\nexec /sbin/ip "$@"',
    )  # fmt: skip
    done = pair.mccl(
        "config", *PAIR, "--yes", "--revert-after", 3, "--output", tmp_path / "hosts.json", status=1
    )
    assert 'after the set-up: b: the connection was lost during "connect again"' in done.stderr
    assert "b cannot be reached, but undoes its changes itself" in done.stderr
    until(lambda: addresses(pair) == before)


def test_a_set_up_that_is_killed_undoes_itself(pair: CabledHosts, tmp_path: Path):
    hangs = 'case "$*" in "addr add"*) /sbin/ip "$@"; exec sleep 1000 ;; esac; exec /sbin/ip "$@"'
    put_program(pair, "b", tmp_path / "bin", "ip", hangs)
    before = addresses(pair)
    command = pair.on("desk", program(), "config", "--ssh-arg=-F", "--ssh-arg", pair.config)
    running = subprocess.Popen(
        [*command, *PAIR, "--yes", "--revert-after", "5"],
        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        cwd=tmp_path, env=environment(),
    )  # fmt: skip
    until(lambda: all(" 192.168." in pair.addresses(name) for name in pair.names))
    running.send_signal(signal.SIGKILL)
    running.wait()
    pair.sshd_options.clear()
    pair.serve_again("b")
    # The guards of the first set-up would also undo another one, so it is refused.
    refused = pair.mccl("config", *PAIR, "--yes", status=1, cwd=tmp_path)
    assert "an earlier set-up of this host is not confirmed" in refused.stderr
    until(lambda: addresses(pair) == before)


def persisted(pair: CabledHosts, tmp_path: Path, manager: str) -> subprocess.CompletedProcess[str]:
    """Runs a set-up with --persist. systemctl on both hosts reports only `manager` as active."""
    says = f'[ "$*" = "is-active {manager}" ] && echo active'
    for name in pair.names:
        put_program(pair, name, tmp_path / "bin", "systemctl", says)
        for missing in ("netplan", "nmcli"):
            put_program(pair, name, tmp_path / "bin", missing, "exit 1")
    return pair.mccl(
        "config", *PAIR, "--yes", "--persist", "--output", tmp_path / "hosts.json", status=None
    )


@pytest.fixture
def etc(pair: CabledHosts) -> Iterator[dict[str, Path]]:
    """Folders by host. `ip netns exec` mounts their entries over those of the host's /etc."""
    folders = {name: Path("/etc/netns") / pair.space(name) for name in pair.names}
    for folder in folders.values():
        (folder / "systemd/network").mkdir(parents=True)
    for name in pair.names:
        pair.serve_again(name)
    yield folders
    for folder in folders.values():
        shutil.rmtree(folder)
    if not any(Path("/etc/netns").iterdir()):
        Path("/etc/netns").rmdir()


@pytest.mark.skipif(not Path(NETWORKD).exists(), reason="systemd-networkd is not installed")
@without_netplan
def test_addresses_survive_a_restart_with_networkd(pair: CabledHosts, etc: dict, tmp_path: Path):
    done = persisted(pair, tmp_path, "systemd-networkd")
    assert done.returncode == 0, done.stderr
    file = etc["a"] / "systemd/network/05-mccl-c0.network"
    assert "Address=192.168.0.1/30" in file.read_text()
    # A restart keeps the file only, from which networkd assigns the address again. With a read-only
    # /sys networkd does not wait for udev.
    pair.ip("a", "-4", "addr", "flush", "dev", "c0")
    script = (
        "mount -o remount,ro /sys && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/netif && "
        f"exec {NETWORKD}"
    )
    networkd = subprocess.Popen(
        pair.on("a", "unshare", "-m", "sh", "-c", script),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: " 192.168.0.1/30 " in pair.addresses("a"))
    finally:
        networkd.terminate()
        networkd.wait(timeout=PATIENCE)
    undone = subprocess.run(
        pair.on("desk", "sh", tmp_path / "hosts.json.undo.sh"), capture_output=True, text=True
    )
    assert undone.returncode == 0, undone
    assert not file.exists() and " 192.168." not in pair.addresses("a")


@pytest.mark.long
@without_netplan
def test_undo_restores_what_an_earlier_run_persisted(pair: CabledHosts, etc: dict, tmp_path: Path):
    for _ in range(2):
        done = persisted(pair, tmp_path, "systemd-networkd")
        assert done.returncode == 0, done.stderr
    file = etc["a"] / "systemd/network/05-mccl-c0.network"
    kept = file.read_text()
    for script, is_kept in (("hosts.json.undo.sh.2", True), ("hosts.json.undo.sh", False)):
        undone = subprocess.run(
            pair.on("desk", "sh", tmp_path / script), capture_output=True, text=True
        )
        assert undone.returncode == 0, undone
        assert file.exists() == is_kept and (not is_kept or file.read_text() == kept)
    assert " 192.168." not in pair.addresses("a")


@pytest.mark.long
@without_netplan
def test_addresses_that_the_user_has_persisted_are_not_changed(
    pair: CabledHosts, etc: dict, tmp_path: Path
):
    """A file of MCCL's would take precedence over the user's, and drop its other settings."""
    pair.mccl("config", *PAIR, "--yes", "--output", tmp_path / "hosts.json")
    own = etc["a"] / "systemd/network/10-desk.network"
    own.write_text("[Match]\nName=c0\n[Network]\nAddress=192.168.0.1/30\n[Link]\nMTUBytes=9000\n")
    done = persisted(pair, tmp_path, "systemd-networkd")
    assert done.returncode == 0, done.stderr
    assert not (etc["a"] / "systemd/network/05-mccl-c0.network").exists()
    assert (etc["b"] / "systemd/network/05-mccl-c0.network").exists()


@pytest.mark.long
@without_netplan
def test_addresses_stay_until_a_restart_where_they_cannot_be_kept(
    pair: CabledHosts, etc: dict, tmp_path: Path
):
    (etc["b"] / "systemd/network").rmdir()
    (etc["b"] / "systemd/network").write_text("not a folder")
    done = persisted(pair, tmp_path, "systemd-networkd")
    assert done.returncode == 1
    assert "lose them when their hosts restart; sh " in done.stderr
    assert not (etc["a"] / "systemd/network/05-mccl-c0.network").exists()
    assert " 192.168.0.1/30 " in pair.addresses("a")


@without_netplan
def test_a_host_without_a_network_manager_is_named(pair: CabledHosts, tmp_path: Path):
    before = addresses(pair)
    done = persisted(pair, tmp_path, "none")
    assert done.returncode == 1
    assert "a has none of netplan, NetworkManager and systemd-networkd" in done.stderr
    assert "nothing was changed" in done.stderr and addresses(pair) == before


@without_netplan
def test_networkmanager_assigns_the_addresses_itself(pair: CabledHosts, tmp_path: Path):
    """NetworkManager removes addresses that it does not manage when DHCP fails."""
    log = tmp_path / "log"
    nmcli = f"""
echo "$*" >> {log}
case "$*" in
  *RUNNING*) echo running ;;
  *GENERAL.STATE*) echo "30 (disconnected)" ;;
  *" up "*) exec /sbin/ip addr add "$(cat {tmp_path}/c0.$(readlink /proc/self/ns/net))" dev c0 ;;
  *"connection show"*) echo no ;;
  *"connection add"*) while [ "$1" != ipv4.addresses ]; do shift; done
                      echo "$2" > "{tmp_path}/c0.$(readlink /proc/self/ns/net)" ;;
esac
"""
    for name in pair.names:
        put_program(pair, name, tmp_path / "bin", "nmcli", nmcli)
        put_program(pair, name, tmp_path / "bin", "netplan", "exit 1")
    done = pair.mccl(
        "config", *PAIR, "--yes", "--persist", "--output", tmp_path / "hosts.json", status=None
    )
    said = log.read_text()
    assert "connection add save no type ethernet con-name mccl-c0 ifname c0" in said, done.stderr
    assert "ipv4.addresses 192.168.0.1/30" in said and "connection up mccl-c0" in said
    assert "connection modify mccl-c0 connection.autoconnect yes" in said
    script = (tmp_path / "hosts.json.undo.sh").read_text()
    assert script.count("nmcli connection delete mccl-c0") == 4
    assert script.count("connection.autoconnect $(cat /var/lib/NetworkManager/mccl-c0.before)") == 2
    noted = Path("/var/lib/NetworkManager/mccl-c0.before")
    assert noted.read_text() == "no\n"
    noted.unlink()
    if not any(noted.parent.iterdir()):
        noted.parent.rmdir()


def test_a_probe_reports_the_networks_that_its_host_uses(pair: CabledHosts):
    pair.ip("a", "neigh", "add", "10.78.0.77", "lladdr", "2:0:0:0:0:1", "dev", "cable")
    answer = json.loads(
        pair.mccl("doctor", "--hosts", "a", "--no-measure", "--json", status=None).stdout
    )
    used = {each["network"]: each["by"] for each in answer["hosts"][0]["in_use"]}
    assert used["10.78.0.77/32"] == "a neighbour"
    assert used["10.78.0.100/32"] == "an end of the ssh connection"
