"""A real Slurm for tests: slurmctld, slurmd and munged on this machine."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
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
    """A Slurm cluster of one node, which claims to have four cores."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mccl-slurm-"))
        self.folder.chmod(0o755)
        self.daemons: list[subprocess.Popen] = []
        self.config = self.folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.config)}
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _write_config(self) -> None:
        name = socket.gethostname().split(".")[0]
        self.config.write_text(f"""
ClusterName=test
SlurmctldHost={name}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName={name} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")

    def _start(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for name in ("state", "spool", "munge"):
            (self.folder / name).mkdir()
        self._write_config()
        own = self.folder / "munge"
        self._daemon(
            find("munged"), "--foreground", "--force", f"--key-file={key}",
            f"--socket={self.folder}/munge.socket", f"--pid-file={own}/pid",
            f"--log-file={own}/log", f"--seed-file={own}/seed",
        )  # fmt: skip
        self._wait(lambda: (self.folder / "munge.socket").exists())
        self._daemon(find("slurmctld"), "-D", "-f", self.config)
        self._daemon(find("slurmd"), "-D", "-f", self.config)
        self._wait(self._is_idle)

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
            ["sinfo", "-h", "-o", "%T"],
            capture_output=True,
            text=True,
            env=environment(**self.environment),
        )
        return state.stdout.strip() == "idle"

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
        shutil.rmtree(self.folder)


def made_for_a_module():
    """Body of a module-scoped fixture `slurm`: yields a running Slurm and stops it afterwards."""
    for name in DAEMONS:
        find(name)
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    made = Slurm()
    yield made
    made.close()
