"""Hosts for `mccl launch`: network namespaces with an address and a real sshd each."""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from launching import run, start

PATIENCE = 60
NETWORK = "10.78.0"
APART = "10.80"
_number = itertools.count()


def shell(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def missing() -> str:
    """Returns why such hosts cannot be made on this machine, or an empty string if they can."""
    for program in ("ip", "ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not Path("/usr/sbin/sshd").is_file():
        return "there is no sshd (Debian's openssh-server)"
    probe = f"mccl-probe-{os.getpid()}"
    made = shell("ip", "netns", "add", probe)
    shell("ip", "netns", "del", probe)
    return "" if made.returncode == 0 else f"`ip netns` cannot make hosts: {made.stderr.strip()}"


class SshHosts:
    """The host `desk`, from which jobs are launched, and hosts a, b, … on one network.

    If `apart` is true, each host has a separate network with the desk and none with other hosts.
    """

    def __init__(self, count: int, apart: bool = False) -> None:
        self.apart = apart
        self.names = [chr(ord("a") + i) for i in range(count)]
        self.folder = Path(tempfile.mkdtemp(prefix="mccl-hosts-"))
        self.prefix = f"mccl{os.getpid()}-{next(_number)}"
        self.servers: dict[str, subprocess.Popen] = {}
        self.cables = 0
        self.config = self.folder / "ssh_config"
        # Both by host: words that precede the sshd command, and extra options for sshd. They take
        # effect when `serve_again` restarts the sshd.
        self.before_sshd: dict[str, tuple[object, ...]] = {}
        self.sshd_options: dict[str, tuple[str, ...]] = {}
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def space(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def address(self, name: str) -> str:
        number = self.names.index(name) + 1
        return f"{APART}.{number}.1" if self.apart else f"{NETWORK}.{number}"

    def _must(self, *command: object) -> None:
        done = shell(*command)
        assert done.returncode == 0, (command, done.stderr)

    def _make(self) -> None:
        desk = self.space("desk")
        self._must("ip", "netns", "add", desk)
        self._must("ip", "-n", desk, "link", "set", "lo", "up")
        self._must("ip", "-n", desk, "link", "add", "net", "type", "bridge")
        self._must("ip", "-n", desk, "addr", "add", f"{NETWORK}.100/24", "dev", "net")
        self._must("ip", "-n", desk, "link", "set", "net", "up")
        for key in ("client", "stranger", "host"):
            self._must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key)
        Path("/run/sshd").mkdir(exist_ok=True)
        (self.folder / "home").mkdir()
        for name in self.names:
            self._plug(name)
            self.serve(name)
        self._write_config("client")

    def _plug(self, name: str) -> None:
        desk, space = self.space("desk"), self.space(name)
        self._must("ip", "netns", "add", space)
        self._must("ip", "-n", space, "link", "set", "lo", "up")
        self._must(
            "ip", "-n", desk, "link", "add", f"to-{name}", "type", "veth",
            "peer", "name", "cable", "netns", space,
        )  # fmt: skip
        if self.apart:
            number = self.names.index(name) + 1
            self._must(
                "ip", "-n", desk, "addr", "add", f"{APART}.{number}.100/24", "dev", f"to-{name}"
            )
            self._must("ip", "-n", desk, "link", "set", f"to-{name}", "up")
        else:
            self._must("ip", "-n", desk, "link", "set", f"to-{name}", "master", "net", "up")
        self._must("ip", "-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "cable")
        self._must("ip", "-n", space, "link", "set", "cable", "up")

    def serve(self, name: str) -> None:
        """Starts the host's sshd and waits until it answers."""
        log = self.folder / f"sshd-{name}.log"
        self.servers[name] = subprocess.Popen(
            [
                "ip", "netns", "exec", self.space(name), *self.before_sshd.get(name, ()),
                "/usr/sbin/sshd", "-D", "-e",
                "-f", "/dev/null",
                "-o", f"ListenAddress={self.address(name)}", "-o", f"HostKey={self.folder}/host",
                "-o", f"AuthorizedKeysFile={self.folder}/client.pub", "-o", "StrictModes=no",
                "-o", "PasswordAuthentication=no", "-o", "PidFile=none",
                *self._with_variables(name),
            ],
            stdout=subprocess.DEVNULL,
            stderr=log.open("w"),
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while "listening" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            assert self.servers[name].poll() is None, log.read_text()
            time.sleep(0.005)

    def variables(self, name: str) -> dict[str, str]:
        """Returns the environment variables of the host's ssh sessions.

        HOME is an empty folder. Otherwise this machine's ~/.bashrc would run on every host.
        """
        return {"HOME": f"{self.folder}/home"}

    def _with_variables(self, name: str) -> list[str]:
        """Returns the extra options of the host's sshd. They contain a single SetEnv, because sshd
        uses only the first one.
        """
        options = self.sshd_options.get(name, ())
        words = " ".join(f"{key}={value}" for key, value in self.variables(name).items())
        given = [f"{o} {words}" if o.startswith("SetEnv=") else o for o in options]
        return given if given != list(options) else [*given, "-o", f"SetEnv={words}"]

    def serve_again(self, name: str) -> None:
        """Restarts the host's sshd with the current `before_sshd` and `sshd_options`."""
        self.servers[name].send_signal(signal.SIGTERM)
        self.servers[name].wait(timeout=PATIENCE)
        self.serve(name)

    def _write_config(self, key: str) -> None:
        known = self.folder / "known_hosts"
        public = (self.folder / "host.pub").read_text()
        known.write_text("".join(f"{self.address(name)} {public}" for name in self.names))
        text = "".join(f"Host {name}\n  HostName {self.address(name)}\n" for name in self.names)
        text += f"Host *\n  IdentityFile {self.folder}/{key}\n  IdentitiesOnly yes\n"
        text += f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n"
        # The default key exchange takes a tenth of a second of a core per connection.
        text += "  KexAlgorithms curve25519-sha256\n"
        self.config.write_text(text)

    def use_key(self, key: str) -> None:
        """Makes ssh use the key `client`, which the hosts accept, or `stranger`, which they refuse.

        The keys' files are in `folder`.
        """
        self._write_config(key)

    def forget(self, name: str) -> None:
        """Removes the host's key from the desk's known_hosts file."""
        known = self.folder / "known_hosts"
        lines = known.read_text().splitlines(keepends=True)
        known.write_text("".join(x for x in lines if not x.startswith(self.address(name) + " ")))

    def pull(self, name: str) -> None:
        """Takes down the link between the host and the desk."""
        self._must("ip", "-n", self.space("desk"), "link", "set", f"to-{name}", "down")

    def plug_in(self, name: str) -> None:
        self._must("ip", "-n", self.space("desk"), "link", "set", f"to-{name}", "up")

    def isolate(self) -> None:
        """Cuts the hosts off from each other on the network. Each still reaches the desk."""
        for name in self.names:
            self._must(
                "bridge", "-n", self.space("desk"), "link", "set", "dev", f"to-{name}",
                "isolated", "on",
            )  # fmt: skip

    def join(self, one: str, other: str, network: str) -> None:
        """Joins two hosts by a cable whose ends have the addresses `network`.1 and `network`.2."""
        device, self.cables = f"cable{self.cables}", self.cables + 1
        self._must(
            "ip", "-n", self.space(one), "link", "add", device, "type", "veth",
            "peer", "name", device, "netns", self.space(other),
        )  # fmt: skip
        for name, end in ((one, 1), (other, 2)):
            space, address = self.space(name), f"{network}.{end}/30"
            self._must("ip", "-n", space, "addr", "add", address, "dev", device)
            self._must("ip", "-n", space, "link", "set", device, "up")

    def on(self, name: str, *command: object) -> list[str]:
        """Returns the command wrapped so that it runs on a host, or on the desk."""
        return ["ip", "netns", "exec", self.space(name), *map(str, command)]

    def close(self) -> None:
        for server in self.servers.values():
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=PATIENCE)
        for name in [*self.names, "desk"]:
            shell("ip", "netns", "del", self.space(name))
        shutil.rmtree(self.folder)


def _flags(hosts: SshHosts, *arguments: object) -> tuple:
    return ("--ssh-arg=-F", "--ssh-arg", hosts.config, *arguments)


def launch(hosts: SshHosts, *arguments: object, status: int = 0, **options: object):
    """Runs `mccl launch` on the desk to its end."""
    return run(*_flags(hosts, *arguments), status=status, before=hosts.on("desk"), **options)


def begin(hosts: SshHosts, *arguments: object, **options: object):
    """Starts `mccl launch` on the desk."""
    return start(*_flags(hosts, *arguments), before=hosts.on("desk"), **options)
