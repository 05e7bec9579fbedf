"""Hosts that answer like Macs: their system programs replay recorded output of Macs.

No Mac is needed. The output has the form of recordings, with names and addresses of the tests.
"""

import json
import os
from pathlib import Path

from cabled_hosts import CabledHosts
from launching import program

IDLE = "Up to 120 Gb/s"
OLD_IDLE = "Up to 40 Gb/s"
ADDRESSES = """
case "$*" in
  -a) cat "$here/ifconfig.txt" ;;
  *) echo "ifconfig $*" >> "$here/log"
     case "$3" in
       "") [ -e "$here/refuses" ] && grep -q "$1" "$here/refuses" && exit 5; exit 0 ;;
     esac
     c=$(sed -n "s/^$1 //p" "$here/cables"); [ -n "$c" ] || { echo "no interface $1" >&2; exit 1; }
     [ -e "$here/refuses" ] && grep -q "$1" "$here/refuses" && { echo "denied" >&2; exit 5; }
     case "$*" in
       *" alias") exec /sbin/ip addr add "$3/30" dev "$c" ;;
       *" -alias") exec /sbin/ip addr del "$3/30" dev "$c" ;;
     esac ;;
esac
"""
ROUTE = """
echo "route $*" >> "$here/log"
"""


def uuid(host: str, port: int) -> str:
    """Returns the UUID of a port, in Thunderbolt's format."""
    return f"{ord(host):08X}-0000-4000-8000-{port:012X}"


class Mac:
    """The output of one Mac's system programs. Port p is the interface en<p+1>."""

    def __init__(self, name: str, ports: int, idle: str) -> None:
        self.name = name
        self.ports = ports
        self.idle = idle
        self.peers: dict[int, tuple[str, int, str, bool]] = {}
        self.bridged: set[int] = set()
        self.rdma = "80" in idle or "120" in idle

    def bus(self, port: int) -> dict:
        peer = self.peers.get(port)
        bus = {
            "_name": f"thunderboltusb4_bus_{port - 1}",
            "device_name_key": "Mac Studio",
            "domain_uuid_key": uuid(self.name, port),
            "receptacle_1_tag": {
                "receptacle_id_key": str(port),
                "current_speed_key": peer[2] if peer else self.idle,
                "link_status_key": "0x2" if peer else "0x7",
                "receptacle_status_key": "receptacle_connected"
                if peer
                else "receptacle_no_devices_connected",
            },
        }
        if peer:
            name, there, _, dock = peer
            item = {"_name": "Mac Studio", "device_name_key": "Mac16,9"}
            item["domain_uuid_key"] = uuid(name, there)
            bus["_items"] = [{"_name": "CalDigit TS5", "_items": [item]}] if dock else [item]
        return bus

    def system_profiler(self) -> str:
        return json.dumps({"SPThunderboltDataType": [self.bus(p + 1) for p in range(self.ports)]})

    def networksetup(self) -> str:
        text = "\nHardware Port: Ethernet\nDevice: en0\nEthernet Address: 1c:f6:4c:00:00:01\n"
        text += "\nHardware Port: Wi-Fi\nDevice: en1\nEthernet Address: 1c:f6:4c:00:00:02\n"
        for port in range(1, self.ports + 1):
            text += f"\nHardware Port: Thunderbolt {port}\nDevice: en{port + 1}\n"
            text += f"Ethernet Address: 36:f9:11:00:00:{port:02x}\n"
        text += "\nHardware Port: Thunderbolt Bridge\nDevice: bridge0\n"
        return text + "Ethernet Address: 36:f9:11:00:00:01\n\nVLAN Configurations\n=====\n"

    def ifconfig(self, address: str) -> str:
        up = "flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST>"
        text = "lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> mtu 16384\n"
        text += "\tinet 127.0.0.1 netmask 0xff000000\n"
        text += f"en0: {up} mtu 1500\n\tether 1c:f6:4c:00:00:01\n"
        text += f"\tinet {address} netmask 0xffffff00 broadcast 10.78.0.255\n"
        text += "\tmedia: autoselect (10Gbase-T <full-duplex>)\n\tstatus: active\n"
        text += f"en1: {up} mtu 1500\n\tether 1c:f6:4c:00:00:02\n\tstatus: inactive\n"
        for port in range(1, self.ports + 1):
            status = "active" if port in self.peers else "inactive"
            text += f"en{port + 1}: {up} mtu 1500\n\tether 36:f9:11:00:00:{port:02x}\n"
            text += f"\tmedia: autoselect <full-duplex>\n\tstatus: {status}\n"
        text += f"bridge0: {up} mtu 1500\n\tConfiguration:\n\t\tid 0:0:0:0:0:0 priority 0\n"
        for port in sorted(self.bridged):
            text += f"\tmember: en{port + 1} flags=3<LEARNING,DISCOVER>\n"
        return text + "utun0: flags=8051<UP,POINTOPOINT,RUNNING,MULTICAST> mtu 1380\n"

    def ibv_devices(self) -> str:
        text = "    device          \t   node GUID\n    ------          \t----------------\n"
        for port in self.peers if self.rdma else ():
            text += f"    rdma_en{port + 1}        \t{0x36F911 + port:016x}\n"
        return text

    def write(self, folder: Path, address: str) -> None:
        """Writes the programs into a folder that will be in PATH."""
        files = {
            "system_profiler": self.system_profiler(),
            "networksetup": self.networksetup(),
            "ibv_devices": self.ibv_devices(),
            "rdma_ctl": "enabled\n",
            "sw_vers": "26.2\n",
            "netstat": "Internet:\ndefault 10.78.0.254 UGScg en0\n127 127.0.0.1 UCS lo0\n"
            "10.78/24 link#11 UCS en0\n",
        }
        folder.mkdir()
        (folder / "ifconfig.txt").write_text(self.ifconfig(address))
        head = f"#!/bin/sh\nhere={folder}\n"
        programs = {"ifconfig": ADDRESSES, "route": ROUTE}
        programs["sysctl"] = 'case "$*" in *ncpu) echo 16 ;; *) echo 137438953472 ;; esac\n'
        real = program()
        programs["mccl"] = (
            f'[ "$1" = probe ] && exec {real} probe --system macos; exec {real} "$@"\n'
        )
        for name, text in files.items():
            (folder / f"{name}.txt").write_text(text)
            programs[name] = f'cat "$here/{name}.txt"\n'
        for name, text in programs.items():
            (folder / name).write_text(head + text)
            (folder / name).chmod(0o755)


class MacHosts(CabledHosts):
    """Macs joined by Thunderbolt cables: ("a", port, "b", port, speed, whether through a dock)."""

    def __init__(self, count: int, cables: list[tuple], ports: int = 4, idle: str = IDLE) -> None:
        super().__init__(count, [(cable[0], cable[2]) for cable in cables])
        self.macs = {name: Mac(name, ports, idle) for name in self.names}
        for a, port, b, there, *more in cables:
            speed, dock = (*more, "80 Gb/s", False)[:2] if len(more) < 2 else more
            self.macs[a].peers[port] = (b, there, speed, dock)
            self.macs[b].peers[there] = (a, port, speed, False)
        self._ends = cables
        try:
            self.replay()
        except BaseException:
            self.close()
            raise

    def programs(self, name: str) -> Path:
        return self.folder / f"mac-{name}"

    def replay(self) -> None:
        """Writes the programs of all Macs and puts them into the PATH of their sshd."""
        for name, mac in self.macs.items():
            mac.write(self.programs(name), self.address(name))
            cables = ""
            for number, (a, port, b, there, *_) in enumerate(self._ends):
                for end, at in ((a, port), (b, there)):
                    if end == name:
                        cables += f"en{at + 1} c{number}\n"
            (self.programs(name) / "cables").write_text(cables)
            path = f"{self.programs(name)}:{os.environ['PATH']}"
            self.sshd_options[name] = ("-o", f"SetEnv=PATH={path}")
            self.serve_again(name)

    def log(self, name: str) -> list[str]:
        """Returns the commands logged on that host: those that change its network."""
        file = self.programs(name) / "log"
        return file.read_text().splitlines() if file.exists() else []
