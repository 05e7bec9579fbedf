"""Measures an all-reduce between two hosts whose cables are shaped to a known rate.

    python bench/shaped.py                 one cable of 1 Gbit/s; the same with MCCL_ENCRYPTION=on;
                                           then two cables, of 1 and 0.5 Gbit/s
    python bench/shaped.py --mtu 9000      with jumbo frames

The hosts are network namespaces of this machine (Linux, root needed). Each cable is a veth pair
with a token bucket (tc tbf) at both ends. Two ranks of `mccl bench` run over TCP in them, with
every address given by MCCL_LISTEN_ADDR. Each direction of a two-rank all-reduce carries the whole
buffer, so a call takes at least bytes / rate. The token bucket counts whole frames. Only 1448 of
the 1514 bytes of a frame are payload, so TCP can reach at most 95.6 % of the rate at the usual MTU
of 1500.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from comparison.mccl_program import mccl_missing, mccl_program
from comparison.sizes import parse_size, show_size

HEADERS = 14 + 20 + 32  # Ethernet, IPv4, TCP with timestamps
PREFIX = "mcclbench"
BURST = 256 << 10
PORT = 29400
LIMIT = 120.0  # seconds of one run


@dataclass(frozen=True)
class Shape:
    """The cables between the two hosts, in Mbit/s, and whether the ranks encrypt."""

    name: str
    rates: tuple[int, ...]
    encryption: str = "off"

    @property
    def bytes_per_second(self) -> float:
        """The sum of the rates of all cables in one direction."""
        return sum(self.rates) * 1e6 / 8


SHAPES = (
    Shape("link_1g", (1000,)),
    Shape("link_1g_encrypted", (1000,), encryption="on"),
    Shape("links_1g_500m", (1000, 500)),
)


def ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")


class Hosts:
    """Two namespaces of this process, joined by cables."""

    def __init__(self, shape: Shape, mtu: int) -> None:
        self.shape = shape
        self.mtu = mtu
        self.names = [f"{PREFIX}{os.getpid()}{side}" for side in "ab"]

    def build(self) -> None:
        """Makes the namespaces and cables."""
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for number, rate in enumerate(self.shape.rates):
            cable = f"cable{number}"
            ip("-n", self.names[0], "link", "add", cable, "type", "veth",
               "peer", "name", cable, "netns", self.names[1])  # fmt: skip
            for host, name in enumerate(self.names):
                ip("-n", name, "addr", "add", f"{self.address(host, number)}/24", "dev", cable)
                ip("-n", name, "link", "set", cable, "mtu", str(self.mtu), "up")
                ip("netns", "exec", name, "tc", "qdisc", "add", "dev", cable, "root", "tbf",
                   "rate", f"{rate}mbit", "burst", str(BURST), "latency", "50ms")  # fmt: skip

    def address(self, host: int, cable: int) -> str:
        """Returns the address of one end of a cable."""
        return f"10.77.{cable}.{host + 1}"

    def addresses(self, host: int) -> str:
        """Returns a host's addresses on all cables, in the format of MCCL_LISTEN_ADDR."""
        return ",".join(self.address(host, cable) for cable in range(len(self.shape.rates)))

    def sent(self) -> list[int]:
        """Returns the bytes that the first host has sent on each cable."""
        counts = []
        for number in range(len(self.shape.rates)):
            words = ["ip", "-n", self.names[0], "-s", "-j", "link", "show", f"cable{number}"]
            shown = subprocess.run(words, capture_output=True, text=True, check=True)
            counts.append(int(json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"]))
        return counts

    def remove(self) -> None:
        """Removes the namespaces."""
        for name in self.names:
            ip("netns", "del", name, check=False)


def remove_orphans() -> None:
    """Removes the namespaces of runs that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for name in re.findall(rf"^({PREFIX}\d+[ab])\b", listed.stdout, re.MULTILINE):
        if not Path(f"/proc/{name[len(PREFIX) : -1]}").exists():
            ip("netns", "del", name, check=False)


@contextmanager
def hosts_of(shape: Shape, mtu: int) -> Iterator[Hosts]:
    """Makes the hosts, and removes them after the block."""
    hosts = Hosts(shape, mtu)
    try:
        hosts.build()
        yield hosts
    finally:
        hosts.remove()


def rank_environment(hosts: Hosts, rank: int, key: str) -> dict[str, str]:
    """Returns the environment of one rank."""
    return os.environ | {
        "MCCL_RANK": str(rank),
        "MCCL_WORLD_SIZE": "2",
        "MCCL_ROOT": f"{hosts.address(0, 0)}:{PORT}",
        "MCCL_LISTEN_ADDR": hosts.addresses(rank),
        "MCCL_TRANSPORT": "tcp",
        "MCCL_JOB_KEY": key,
        "MCCL_ENCRYPTION": hosts.shape.encryption,
    }


def run_ranks(hosts: Hosts, program: Path, size: int, seconds: float) -> dict:
    """Returns the row that rank 0 reports."""
    key = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        ranks: list[subprocess.Popen] = []
        try:
            for rank, name in enumerate(hosts.names):
                words = ["ip", "netns", "exec", name, str(program), "bench", "all_reduce"]
                words += ["--sizes", str(size), "--seconds", str(seconds)]
                words += ["--no-check", "--no-bounds"]
                words += ["--json", str(result)] if rank == 0 else []
                ranks.append(
                    subprocess.Popen(
                        words, env=rank_environment(hosts, rank, key), stdout=subprocess.DEVNULL
                    )
                )
            for rank, process in enumerate(ranks):
                status = process.wait(timeout=LIMIT)
                if status != 0:
                    raise RuntimeError(f"rank {rank} of `mccl bench` ended with {status}")
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        rows = json.loads(result.read_text())["rows"]
    return min((row for row in rows if row["in_place"]), key=lambda row: row["p50_us"])


def lines_for(shape: Shape, size: int, row: dict) -> list[dict]:
    """Returns the lines for compare.py: MCCL's time, and the least time that the cables allow."""
    line_us = size / shape.bytes_per_second * 1e6
    cell = {"collective": shape.name, "bytes": size}
    return [
        {"contestant": "mccl-tcp", **cell, **{k: row[k] for k in ("time_us", "p50_us", "p99_us")}},
        {"contestant": "line", **cell, "time_us": line_us, "p50_us": line_us},
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Measures each shape."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=parse_size, default=64 << 20, help="default 64M")
    parser.add_argument("--seconds", type=float, default=6, help="duration per shape (default 6)")
    parser.add_argument("--mtu", type=int, default=1500, help="MTU of the cables (default 1500)")
    parser.add_argument("--program", type=Path, help="the mccl program")
    parser.add_argument("--lines", action="store_true", help="print JSON lines for compare.py")
    arguments = parser.parse_args(words)
    program = arguments.program or mccl_program()
    if program is None:
        sys.exit(f"shaped.py: {mccl_missing()}")
    if os.geteuid() != 0:
        sys.exit("shaped.py: network namespaces need root")
    # SIGTERM raises SystemExit, so that the hosts are removed too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    remove_orphans()
    for shape in SHAPES:
        with hosts_of(shape, arguments.mtu) as hosts:
            row = run_ranks(hosts, program.resolve(), arguments.size, arguments.seconds)
            sent = hosts.sent()
        if arguments.lines:
            for line in lines_for(shape, arguments.size, row):
                print(json.dumps(line), flush=True)
            continue
        rate = arguments.size / (row["p50_us"] * 1e-6)
        most = (arguments.mtu + 14 - HEADERS) / (arguments.mtu + 14)
        print(
            f"{'+'.join(map(str, shape.rates))} Mbit/s, encryption {shape.encryption}, "
            f"{show_size(arguments.size)}: "
            f"{rate * 8e-6:.0f} Mbit/s of payload each way, "
            f"{rate / shape.bytes_per_second:.1%} of the line (its frames allow {most:.1%}); "
            f"the cables carried {', '.join(f'{count / sum(sent):.0%}' for count in sent)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
