"""Devices that no test machine has: folders that replace a host's /sys/class.

The files have the format that Linux documents and that machines with such devices show.
"""

from pathlib import Path

from cabled_hosts import CabledHosts

UP = "0x1003"
ETHERNET = 1
NO_LINK_LAYER = 65534  # the type of tunnels such as WireGuard


class Devices:
    """A replacement for a host's /sys/class: the loopback interface and what a test adds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "net").mkdir(parents=True)
        self.loopback()

    def _write(self, place: Path, **texts: object) -> None:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (place / name).write_text(f"{text}\n")

    def loopback(self) -> None:
        self._write(self.folder / "net/lo", carrier=1, mtu=65536, type=772, flags="0x9")

    def interface(
        self, name: str, driver: str = "e1000e", speed: int = 10_000, wifi: bool = False,
        kind: int = ETHERNET, device: Path | None = None,
    ) -> None:  # fmt: skip
        """Adds an interface that is up. An interface whose `kind` is not ETHERNET has no device."""
        place = self.folder / "net" / name
        mac = "52:54:00:" + ":".join(f"{ord(c):02x}" for c in f"{name}000"[:3])
        self._write(place, operstate="up", carrier=1, mtu=1500, address=mac, type=kind, flags=UP)
        if not wifi:
            self._write(place, speed=speed)
        else:
            (place / "wireless").mkdir()
        if kind != ETHERNET:
            return
        device = device or self.folder / "devices" / name
        device.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(f"/sys/bus/drivers/{driver}")
        (place / "device").symlink_to(device)

    def rdma(self, name: str, interface: str, state: str = "4: ACTIVE") -> None:
        port = self.folder / "infiniband" / name / "ports/1"
        self._write(port, state=state, rate="100 Gb/sec (4X EDR)")
        self._write(port / "gid_attrs/ndevs", **{"0": interface})
        self._write(port / "gids", **{"0": "fe80:0000:0000:0000:5054:00ff:fe00:0001",
                                      "1": "0000:0000:0000:0000:0000:0000:0000:0000"})  # fmt: skip

    def thunderbolt(self, interface: str, own: str, peer: str, number: int = 1) -> None:
        """Adds a Thunderbolt cable to another computer, with two lanes of 20 Gb/s in each
        direction.
        """
        router = self.folder / "devices/domain0/0-0"
        self._write(router, unique_id=own)
        there = router / f"0-{number}"
        self._write(there, unique_id=peer, device_name="desk", rx_speed="20.0 Gb/s", rx_lanes=2)
        self.interface(interface, "thunderbolt-net", -1, device=there / f"0-{number}.0")

    def show_to(self, hosts: CabledHosts, name: str) -> None:
        """Makes this folder the /sys/class of the host's ssh sessions from now on."""
        hosts.before_sshd[name] = (
            "unshare", "--mount", "sh", "-c",
            f'mount --bind {self.folder} /sys/class; exec "$@"', "-",
            *hosts.before_sshd.get(name, ()),
        )  # fmt: skip
        hosts.serve_again(name)
