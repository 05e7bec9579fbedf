"""A real Slurm for tests: slurmctld, slurmd and munged on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import wired_hosts
from free_port import free_port
from launching import PATIENCE, environment

DAEMONS = ("slurmctld", "slurmd", "munged", "srun", "sbatch")


def run(*command: object, **variables: str) -> str:
    # SIGTERM lets srun and sbatch give their allocation back.
    limited = ("timeout", "--signal=TERM", PATIENCE, *command)
    done = subprocess.run(
        [str(word) for word in limited],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        env=environment(**variables),
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def find(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


class Slurm:
    """A Slurm cluster, each of whose nodes claims to have four cores.

    A cluster of one node is this machine. Each of several nodes is a namespace with a network, a
    name and a /dev/shm of its own; the control daemon and all commands run on the first.
    """

    def __init__(self, nodes: int = 1) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mccl-slurm-"))
        self.folder.chmod(0o755)
        self.daemons: list[subprocess.Popen] = []
        self.config = self.folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.config)}
        self.nodes = {socket.gethostname().split(".")[0]: "127.0.0.1"}
        if nodes > 1:
            self.nodes = {f"node{k}": f"10.78.0.{k}" for k in range(1, nodes + 1)}
        self.spaces = [f"mccls{os.getpid()}-{name}" for name in self.nodes] if nodes > 1 else []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _write_config(self) -> None:
        first, address = next(iter(self.nodes.items()))
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={address} CPUs=4 State=UNKNOWN"
            for name, address in self.nodes.items()
        )
        self.config.write_text(f"""
ClusterName=test
SlurmctldHost={first}({address})
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")

    def _start(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for name in ("state", "munge"):
            (self.folder / name).mkdir()
        self._make_hosts()
        self._write_config()
        own = self.folder / "munge"
        self._daemon(
            find("munged"), "--foreground", "--force", f"--key-file={key}",
            f"--socket={self.folder}/munge.socket", f"--pid-file={own}/pid",
            f"--log-file={own}/log", f"--seed-file={own}/seed",
        )  # fmt: skip
        self._wait(lambda: (self.folder / "munge.socket").exists())
        self._daemon(*self.on(), find("slurmctld"), "-D", "-f", self.config)
        for k, name in enumerate(self.nodes):
            self._daemon(*self.on(k), find("slurmd"), "-D", "-f", self.config, "-N", name)
        self._wait(self._is_idle)

    def _make_hosts(self) -> None:
        """Joins the namespaces by a bridge in the first."""
        if not self.spaces:
            return
        lines = [f"{address} {name}\n" for name, address in self.nodes.items()]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        first = self.spaces[0]
        for space in self.spaces:
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "-n", first, "link", "add", "net", "type", "bridge")
        for k, space in enumerate(self.spaces[1:]):
            port = ("link", "add", f"port{k}", "type", "veth", "peer", "net", "netns", space)
            run("ip", "-n", first, *port)
            run("ip", "-n", first, "link", "set", f"port{k}", "master", "net", "up")
        for space, address in zip(self.spaces, self.nodes.values(), strict=True):
            run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "net")
            run("ip", "-n", space, "link", "set", "net", "up")

    def on(self, index: int = 0) -> tuple[str, ...]:
        """Returns the words before a command that make it run on a node."""
        if not self.spaces:
            return ()
        script = (
            f"mount --bind {self.folder}/hosts /etc/hosts && mount -t tmpfs shm /dev/shm && "
            f'hostname {list(self.nodes)[index]} && exec "$@"'
        )
        own = ("unshare", "--mount", "--uts", "sh", "-c", script, "-")
        # Unlike `ip netns exec`, nsenter keeps /sys, where slurmd needs the control groups.
        return ("nsenter", f"--net=/run/netns/{self.spaces[index]}", *own)

    def _daemon(self, *command: object) -> None:
        log = (self.folder / f"daemon-{len(self.daemons)}.log").open("w")
        self.daemons.append(
            subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(**self.environment),
            )
        )

    def _is_idle(self) -> bool:
        state = subprocess.run(
            [*self.on(), "sinfo", "-h", "-N", "-o", "%T"],
            capture_output=True,
            text=True,
            env=environment(**self.environment),
        )
        return state.stdout.split() == ["idle"] * len(self.nodes)

    def _wait(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            logs = "".join(path.read_text() for path in self.folder.glob("*.log"))
            assert time.monotonic() < deadline, logs
            assert all(daemon.poll() is None for daemon in self.daemons), logs
            time.sleep(0.1)

    def close(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(timeout=PATIENCE)
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)
        shutil.rmtree(self.folder)


def made_for_a_module(nodes: int = 1):
    """Body of a module-scoped fixture `slurm`: yields a running Slurm and stops it afterwards."""
    for name in DAEMONS:
        find(name)
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    if nodes > 1 and (reason := wired_hosts.missing()):
        pytest.skip(reason)
    made = Slurm(nodes)
    yield made
    made.close()
