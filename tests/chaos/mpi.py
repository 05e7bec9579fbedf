"""Ranks in C++ on the mpi backend, which Open MPI's mpirun starts.

A death must not end the job, so mpirun lets the other ranks go on. A shell starts each rank, and
writes the rank's process ID and exit code into files.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

import cpp
from launching import environment
from mpi_jobs import AS_ROOT, FLAGS, own_session
from scenario import Scenario

_MPIRUN = "mpirun.openmpi"
#: The arguments are the folder of the trial and the program.
_SHELL = """
rank=$OMPI_COMM_WORLD_RANK
"$1" "$0/scenario" $rank "$0/say.$rank" "$0/hear.$rank" "" &
echo $! > "$0/pid.$rank"
wait $!
echo $? > "$0/code.$rank"
"""
#: Seconds that mpirun may take to end after its ranks.
_EXIT = 10.0


def is_missing() -> bool:
    return cpp.is_missing() or shutil.which(_MPIRUN) is None


#: The code of a rank that mpirun has ended, as it may once another rank has left without
#: MPI_Finalize.
ENDED_BY_MPIRUN = 71


class Ranks:
    """The ranks of one trial."""

    def __init__(self, scenario: Scenario, stderr: IO[bytes]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mccl-chaos-mpi-")
        folder = Path(self._folder.name)
        (folder / "scenario").write_text(cpp.text(scenario))
        self.processes = [MpiRank(folder, rank) for rank in range(scenario.size)]
        words = [_MPIRUN, *FLAGS["openmpi"], "--enable-recovery", "-n", str(scenario.size)]
        self._launcher = subprocess.Popen(
            [*words, "sh", "-c", _SHELL, str(folder), str(cpp.program())],
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            env=environment(**AS_ROOT, **own_session(folder)),
        )
        for process in self.processes:
            process.launcher = self._launcher

    def close(self) -> None:
        try:
            self._launcher.wait(_EXIT)
        except subprocess.TimeoutExpired:
            self._launcher.kill()
            self._launcher.wait()
        self._folder.cleanup()


class MpiRank:
    """A rank, with the interface of a process that job.py forks."""

    launcher: subprocess.Popen[bytes]

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self.code: int | None = None
        self._folder = folder
        self._buffer = b""
        for name in ("say", "hear"):
            os.mkfifo(folder / f"{name}.{rank}")
        # Opened for both directions, so that no end waits for the other.
        self.events = os.open(folder / f"say.{rank}", os.O_RDWR | os.O_NONBLOCK)
        self._command = os.open(folder / f"hear.{rank}", os.O_RDWR)

    def read(self) -> list[dict[str, Any]]:
        """Returns the events that have arrived; closes the FIFO once the rank has ended."""
        try:
            data = os.read(self.events, 1 << 16)
        except BlockingIOError:
            if self.code is not None:
                os.close(self.events)
                self.events = -1
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def command(self, byte: bytes) -> None:
        os.write(self._command, byte)

    def signal(self, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self._folder / f"pid.{self.rank}").read_text()), number)

    def reap(self) -> bool:
        """Returns whether the rank has ended."""
        ended = self.launcher.poll() is not None
        if self.code is None:
            with contextlib.suppress(OSError, ValueError):
                code = int((self._folder / f"code.{self.rank}").read_text())
                self.code = 128 - code if code > 128 else code  # the shell adds 128 to a signal
        if self.code is None and ended:
            self.code = ENDED_BY_MPIRUN
        return self.code is not None

    def close(self) -> None:
        for descriptor in (self.events, self._command):
            if descriptor >= 0:
                os.close(descriptor)
