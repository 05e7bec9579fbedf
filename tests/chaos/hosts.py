"""Hosts for the ranks of one trial: network namespaces on one switch, and in a ring of cables."""

import ctypes
import itertools
import os
import subprocess

_NETWORK, _RING = "10.83.0", "10.84"
_CLONE_NEWNET = 0x40000000


class Hosts:
    """Up to `size` hosts, each with one cable to a switch. Needs root and Linux."""

    _numbers = itertools.count()

    def __init__(self, size: int) -> None:
        self._prefix = f"mcclx{os.getpid()}-{next(self._numbers)}"
        self._size = size
        self._made: list[str] = []
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def missing() -> str:
        """Returns why hosts cannot be made, or an empty string."""
        try:
            hosts = Hosts(1)
            try:
                hosts.lose(0, "to")
                hosts.slow(0, "1mbit")
            finally:
                hosts.close()
        except (OSError, subprocess.CalledProcessError) as error:
            return f"network namespaces cannot be made and disturbed here ({error})"
        return ""

    def _name(self, host: int | str) -> str:
        return f"{self._prefix}-{host}"

    def address(self, host: int) -> str:
        return f"{_NETWORK}.{host + 1}"

    def _make(self) -> None:
        switch = self._name("switch")
        for name in (switch, *map(self._name, range(self._size))):
            _ip(f"netns add {name}")
            self._made.append(name)
        lines = ["link set lo up", "link add switch type bridge", "link set switch up"]
        for host in range(self._size):
            peer = f"link add c{host} type veth peer name cable netns {self._name(host)}"
            lines += [peer, f"link set c{host} master switch up"]
        _ip(f"-n {switch} -batch -", "\n".join(lines))
        for host in range(self._size if self._size > 2 else 0):
            following = self._name((host + 1) % self._size)
            _ip(f"-n {self._name(host)} link add next type veth peer name last netns {following}")
        for host in range(self._size):
            lines = [f"addr add {self.address(host)}/24 dev cable", "link set lo up"]
            for name, address in self._ends(host) if self._size > 2 else ():
                lines += [f"addr add {address}/30 dev {name}", f"link set {name} up"]
            _ip(f"-n {self._name(host)} -batch -", "\n".join([*lines, "link set cable up"]))

    def _ends(self, host: int) -> list[tuple[str, str]]:
        """Returns the interfaces of a host in the ring, with their addresses."""
        before = (host - 1) % self._size
        return [("next", f"{_RING}.{host}.1"), ("last", f"{_RING}.{before}.2")]

    def table(self, port: int) -> list[list[str]]:
        """Returns the addresses of all hosts in the ring, in the form of a hostfile."""
        hosts = range(self._size)
        return [[f"{address}:{port}" for _, address in self._ends(host)] for host in hosts]

    def command(self, host: int, *words: object) -> list[str]:
        """Returns a command that runs `words` on the host."""
        return ["ip", "netns", "exec", self._name(host), *map(str, words)]

    def enter(self, host: int) -> None:
        """Moves the calling process to the host."""
        libc = ctypes.CDLL(None, use_errno=True)
        space = os.open(f"/var/run/netns/{self._name(host)}", os.O_RDONLY | os.O_CLOEXEC)
        if libc.setns(space, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(space)

    def cut(self, host: int) -> None:
        """Drops all packets from and to the host from now on; no process is told."""
        _ip(f"-n {self._name('switch')} link set c{host} nomaster")

    def lose(self, host: int, direction: str) -> None:
        """Drops the packets "from" the host or "to" it; no process is told."""
        device = f"c{host}" if direction == "from" else "cable"
        chain = f"{{ type filter hook ingress device {device} priority 0; policy drop; }}"
        rules = f"add table netdev chaos; add chain netdev chaos lost {chain}"
        self._run("switch" if direction == "from" else host, "nft", rules)

    def find(self, host: int, direction: str) -> None:
        """Ends what lose() began."""
        self._run("switch" if direction == "from" else host, "nft", "delete table netdev chaos")

    def slow(self, host: int, rate: str) -> None:
        """Limits the rate of the cable, in both directions."""
        for name, device in ((host, "cable"), ("switch", f"c{host}")):
            words = f"qdisc add dev {device} root tbf rate {rate} burst 8kb latency 200ms"
            self._run(name, "tc", *words.split())

    def quicken(self, host: int) -> None:
        """Ends what slow() began."""
        for name, device in ((host, "cable"), ("switch", f"c{host}")):
            self._run(name, "tc", *f"qdisc del dev {device} root".split())

    def _run(self, host: int | str, *words: str) -> None:
        command = ["ip", "netns", "exec", self._name(host), *words]
        subprocess.run(command, check=True, capture_output=True)

    def mend(self, host: int) -> None:
        _ip(f"-n {self._name('switch')} link set c{host} master switch")

    def shut(self, host: int) -> None:
        """Takes the interfaces of the host down."""
        self._set(host, "down")

    def open(self, host: int) -> None:
        """Takes the interfaces of the host up again."""
        self._set(host, "up")

    def _set(self, host: int, state: str) -> None:
        ends = self._ends(host) if self._size > 2 else []
        names = ["cable", *(name for name, _ in ends)]
        lines = "\n".join(f"link set {name} {state}" for name in names)
        _ip(f"-n {self._name(host)} -batch -", lines)

    def reset(self, host: int) -> None:
        """Resets the host's connections to the others, if the kernel can do so on request.

        Kernels without CONFIG_INET_DIAG_DESTROY keep the connections.
        """
        for network in (f"{_NETWORK}.0/24", f"{_RING}.0.0/16"):
            words = self.command(host, "ss", "-K", "dst", network)
            subprocess.run(words, check=False, capture_output=True)

    def close(self) -> None:
        for name in self._made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        self._made = []


def reset_between(first: int, second: int) -> bool:
    """Resets the TCP connections between two processes. Returns False if there are none."""
    ends: dict[int, set[tuple[str, str]]] = {first: set(), second: set()}
    listed = subprocess.run(["ss", "-Htnp"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        for pid, found in ends.items():
            if f"pid={pid}," in line:
                local, peer = line.split()[3:5]
                found.add((local, peer))
    pairs = [(local, peer) for local, peer in ends[first] if (peer, local) in ends[second]]
    for local, peer in pairs:
        subprocess.run(["ss", "-K", "src", local, "dst", peer], check=True, capture_output=True)
    return bool(pairs)


def _ip(words: str, text: str = "") -> None:
    subprocess.run(["ip", *words.split()], input=text, text=True, check=True, capture_output=True)
