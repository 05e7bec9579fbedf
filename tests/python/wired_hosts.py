"""Hosts joined only by cables: network namespaces with a veth pair for each cable."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from launching import program, start_with_pipes

PATIENCE = 120
NETWORK = "10.79"
FIRST_PORT = 5100
_number = itertools.count()


def shell(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def missing() -> str:
    """Returns why such hosts cannot be made on this machine, or an empty string if they can."""
    if shutil.which("ip") is None:
        return "ip is not installed"
    probe = f"mccl-probe-{os.getpid()}"
    made = shell("ip", "netns", "add", probe)
    shell("ip", "netns", "del", probe)
    return "" if made.returncode == 0 else f"`ip netns` cannot make hosts: {made.stderr.strip()}"


class WiredHosts:
    """Hosts for one rank each. Cable k joins the hosts of ranks `cables[k]` and has its own /30.

    The hostfile is the one that `mlx.distributed_config` writes for a ring. It lists a host's
    addresses on the cables whose other end has the lower rank. On the cable that closes a ring, the
    other end has the higher rank.
    """

    def __init__(self, size: int, cables: list[tuple[int, int]], rates: dict | None = None) -> None:
        self.size = size
        self.cables = cables
        self.rates = rates or {}  # rates for tc, by index of the cable
        self.folder = Path(tempfile.mkdtemp(prefix="mccl-wired-"))
        self.prefix = f"mcclw{os.getpid()}-{next(_number)}"
        self.processes: list[subprocess.Popen] = []
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "WiredHosts":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def space(self, rank: int) -> str:
        return f"{self.prefix}-{rank}"

    def end(self, cable: int, rank: int) -> str:
        """Returns the address of a rank's end of a cable."""
        return f"{NETWORK}.{cable}.{1 + self.cables[cable].index(rank)}"

    def _must(self, *command: object) -> None:
        done = shell(*command)
        assert done.returncode == 0, (command, done.stderr)

    def _make(self) -> None:
        for rank in range(self.size):
            self._must("ip", "netns", "add", self.space(rank))
            self._must("ip", "-n", self.space(rank), "link", "set", "lo", "up")
        for index, (a, b) in enumerate(self.cables):
            self._must(
                "ip", "-n", self.space(a), "link", "add", f"c{index}", "type", "veth",
                "peer", "name", f"c{index}", "netns", self.space(b),
            )  # fmt: skip
            for rank in (a, b):
                space, address = self.space(rank), f"{self.end(index, rank)}/30"
                self._must("ip", "-n", space, "addr", "add", address, "dev", f"c{index}")
                self._must("ip", "-n", space, "link", "set", f"c{index}", "up")
                if rate := self.rates.get(index):
                    self._must(
                        "ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", f"c{index}",
                        "root", "tbf", "rate", rate, "burst", "256k", "latency", "50ms",
                    )  # fmt: skip
        self.hostfile = self.folder / "hosts.json"
        table: list[list[str]] = [[] for _ in range(self.size)]
        for index, (_, b) in enumerate(self.cables):
            table[b].append(f"{self.end(index, b)}:{FIRST_PORT + b}")
        for rank, addresses in enumerate(table):
            if addresses:
                continue  # this rank is the lower end of all its cables
            index = next(i for i, ends in enumerate(self.cables) if rank in ends)
            addresses.append(f"{self.end(index, rank)}:{FIRST_PORT + rank}")
        self.hostfile.write_text(json.dumps(table))

    def unplug(self, cable: int) -> None:
        """Takes the cable down. Packets are lost and no process is notified."""
        self._must(
            "ip", "-n", self.space(self.cables[cable][0]), "link", "set", f"c{cable}", "down"
        )

    def plug_in(self, cable: int) -> None:
        """Takes the cable up again."""
        self._must("ip", "-n", self.space(self.cables[cable][0]), "link", "set", f"c{cable}", "up")

    def reset(self, rank: int) -> bool:
        """Resets all connections of the rank's host. Returns False if the kernel cannot do so."""
        done = shell(
            "ip", "netns", "exec", self.space(rank), "ss", "-HK", "dst", f"{NETWORK}.0.0/16"
        )
        return bool(done.stdout)

    def start(self, rank: int, *command: object, **settings: str) -> subprocess.Popen:
        variables = {
            "MCCL_RANK": str(rank),
            "MCCL_WORLD_SIZE": str(self.size),
            "MCCL_HOSTFILE": str(self.hostfile),
            "MCCL_JOB_KEY": "a key of the tests",
            "MCCL_TRANSPORT": "tcp",  # the hosts share a kernel and therefore memory
            "MCCL_CONNECT_TIMEOUT": "30",
            "MCCL_TIMEOUT": "60",
            "OMP_NUM_THREADS": "1",
        }
        command = ["ip", "netns", "exec", self.space(rank), *map(str, command)]
        process = start_with_pipes(command, **(variables | settings))
        self.processes.append(process)
        return process

    def start_all(self, *command: object, **settings: str) -> list[subprocess.Popen]:
        return [self.start(rank, *command, **settings) for rank in range(self.size)]

    def run(self, *command: object, **settings: str) -> list[str]:
        """Runs the command on all hosts and returns each one's standard output. Fails unless all
        succeed.
        """
        ranks = self.start_all(*command, **settings)
        ended = [process.communicate(timeout=PATIENCE) for process in ranks]
        told = "\n".join(f"rank {r}: {out}{err}" for r, (out, err) in enumerate(ended))
        assert all(process.returncode == 0 for process in ranks), told
        return [out for out, _ in ended]

    def bench(self, *arguments: object, **settings: str) -> str:
        return self.run(program(), "bench", "--no-bounds", *arguments, **settings)[0]

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()
        for rank in range(self.size):
            shell("ip", "netns", "del", self.space(rank))
        shutil.rmtree(self.folder)
