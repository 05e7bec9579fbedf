"""Runs one trial: starts its ranks, cuts and continues them, and collects their events."""

import contextlib
import json
import os
import re
import select
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cpp
import mpi
from disk import FullDisk
from free_port import free_port
from hosts import Hosts
from rank import END, GO, RECOVER, Rank
from scenario import FULL, HARMLESS, OPTIONAL, SILENCES, SLOW, Face, Fault, Moment, Scenario

#: Seconds after which whatever has not happened hangs. Beyond every bound that a trial checks.
PATIENCE = 12.0
#: Seconds that a process may take to end.
EXIT = 4.0


@dataclass
class Outcome:
    """The events of a trial, and its end."""

    scenario: Scenario
    seconds: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)
    #: Ranks that did not go on, each with the phase that it was in.
    hangs: list[str] = field(default_factory=list)
    #: The wait status of each rank as an exit code; negative for a signal.
    codes: dict[int, int] = field(default_factory=dict)
    #: The last lines of the ranks' standard error.
    stderr: str = ""
    #: Seconds after which the ranks replaced broken connections, read from their standard error.
    healed: list[float] = field(default_factory=list)
    #: Files that the trial has left in /dev/shm.
    left: list[str] = field(default_factory=list)

    def of(self, name: str, rank: int | None = None) -> list[dict[str, Any]]:
        return [
            each
            for each in self.events
            if each["event"] == name and (rank is None or each["rank"] == rank)
        ]


def healing_times(stderr: str) -> list[float]:
    """Returns the seconds in the warnings about connections that were replaced."""
    return [float(each) for each in re.findall(r"was replaced after (\S+) s, without loss", stderr)]


def network_fault(
    scenario: Scenario, hosts: Hosts
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Returns the function that commits the fault in the network, and the one that ends it."""
    victim, direction = scenario.victim, scenario.direction
    if scenario.fault in (Fault.RESET, Fault.FILES):
        return lambda: hosts.reset(victim), lambda: None
    if scenario.fault == Fault.DOWN:
        return lambda: hosts.shut(victim), lambda: hosts.open(victim)
    if scenario.fault in SLOW:
        return lambda: hosts.slow(victim, scenario.rate), lambda: hosts.quicken(victim)
    if direction:
        return lambda: hosts.lose(victim, direction), lambda: hosts.find(victim, direction)
    return lambda: hosts.cut(victim), lambda: hosts.mend(victim)


class _Process:
    def __init__(self, scenario: Scenario, rank: int, root: str, job: "Job") -> None:
        here, there = os.pipe()
        command, self._command = os.pipe()
        self.events = here
        self.rank = rank
        self.code: int | None = None
        self._buffer = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            for other in job.processes:
                other.close()
            os.dup2(job.stderr.fileno(), 2)
            os.dup2(job.stderr.fileno(), 1)
            if job.hosts is not None:
                job.hosts.enter(rank)
            if scenario.face == Face.CPP:
                cpp.become(job.scenario_file.name, rank, there, command, root)
            Rank(scenario, rank, there, command).live(root)
        os.close(there)
        os.close(command)

    def read(self) -> list[dict[str, Any]]:
        """Returns the events that have arrived; closes the pipe at its end."""
        data = os.read(self.events, 1 << 16)
        if not data:
            os.close(self.events)
            self.events = -1
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def command(self, byte: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._command, byte)

    def signal(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def reap(self) -> bool:
        """Returns whether the process has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def close(self) -> None:
        for descriptor in (self.events, self._command):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


Process = _Process | mpi.MpiRank


class Job:
    """The processes of one trial."""

    def __init__(self, scenario: Scenario, hosts: Hosts | None) -> None:
        self.scenario = scenario
        self.hosts = hosts
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by _end()
        self.hostfile = tempfile.NamedTemporaryFile("w", suffix=".json")  # noqa: SIM115
        #: The scenario, for ranks in C++.
        self.scenario_file = tempfile.NamedTemporaryFile("w", suffix=".txt")  # noqa: SIM115
        self.mpi: mpi.Ranks | None = None
        self.disk: FullDisk | None = None
        self._mend: Callable[[], None] = lambda: None
        self.processes: list[Process] = []
        self.outcome = Outcome(scenario)

    def run(self) -> Outcome:
        scenario, outcome = self.scenario, self.outcome
        began = time.monotonic()
        before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
        try:
            self._start()
            self._run()
        finally:
            self._end()
        outcome.seconds = time.monotonic() - began
        if os.path.isdir("/dev/shm"):
            left = set(os.listdir("/dev/shm")) - before
            # Open MPI leaves the segments of killed ranks.
            outcome.left = sorted(n for n in left if scenario.face != Face.MPI or "mccl" in n)
        return outcome

    def _start(self) -> None:
        scenario = self.scenario
        if scenario.fault in FULL:
            self.disk = FullDisk(scenario.spare)
        if scenario.fault == Fault.SHM:
            at = time.monotonic()
            self.outcome.events.append({"event": "fault", "rank": scenario.victim, "at": at})
        if scenario.face == Face.MPI:
            self.mpi = mpi.Ranks(scenario, self.stderr)
            self.processes += self.mpi.processes
            return
        if scenario.face == Face.CPP:
            self.scenario_file.write(cpp.text(scenario))
            self.scenario_file.flush()
        root = self._meeting_place()
        for rank in range(scenario.size):
            self.processes.append(_Process(scenario, rank, root, self))

    def _meeting_place(self) -> str:
        """Returns the address of rank 0's store, or the file that describes the cables."""
        port = free_port()
        if self.hosts is None or not self.scenario.cabled:
            return f"{self.hosts.address(0) if self.hosts else '127.0.0.1'}:{port}"
        self.hostfile.write(json.dumps(self.hosts.table(port)))
        self.hostfile.flush()
        return self.hostfile.name

    def _run(self) -> None:
        scenario, victim = self.scenario, self.processes[self.scenario.victim]
        if scenario.is_networked:
            self._disturb(victim)
        if scenario.fault == Fault.PAUSE and self._await(lambda: self._has("fault"), "the fault"):
            time.sleep(scenario.delay)
            victim.signal(signal.SIGCONT)
        patience = PATIENCE + scenario.liveness_interval
        if not self._await(self._all_told, "its calls", patience, self._untold):
            return
        if scenario.fault == Fault.STARVE:
            self._mend_network()
        if self._may_recover():
            self._recover()
        if scenario.fault == Fault.STOP:
            self._wake(victim)
        if scenario.fault == Fault.OMIT:
            victim.command(GO)
            self._await(lambda: self._told(victim), "the call after the others gave up")
        for process in self.processes:
            process.command(END)
        for process in self.processes:
            self._await(process.reap, "its exit", EXIT, lambda: [process.rank])  # noqa: B023

    def _disturb(self, victim: Process) -> None:
        assert self.hosts is not None
        if not self._await(lambda: self._has("ready"), "the fault"):
            return
        scenario, rank = self.scenario, victim.rank
        strike, self._mend = network_fault(scenario, self.hosts)
        at = time.monotonic()
        strike()
        self.outcome.events.append({"event": "fault", "rank": rank, "at": at})
        victim.command(GO)
        if scenario.fault in HARMLESS:
            time.sleep(scenario.delay)
            self._mend_network()

    def _mend_network(self) -> None:
        mend, self._mend = self._mend, lambda: None
        mend()

    def _wake(self, victim: Process) -> None:
        """Continues the stopped victim, which must learn that the others have given it up."""
        if not self.scenario.wakes:
            return victim.signal(signal.SIGKILL)
        victim.signal(signal.SIGCONT)
        self._await(lambda: self._told(victim), "its calls after it was continued")
        return None

    def _may_recover(self) -> bool:
        fault = self.scenario.fault
        if self.scenario.face not in (Face.NUMPY, Face.CPP):
            return False
        return fault not in HARMLESS | OPTIONAL and self.scenario.moment != Moment.MEETING

    def _survivors(self) -> list[Process]:
        """Returns the processes that are alive and have failed calls."""
        return [p for p in self.processes if self._has("error", p.rank) and not p.reap()]

    def _recover(self) -> None:
        """Lets the ranks that failed shrink their group, if all other ranks are dead or silent."""
        scenario = self.scenario
        survivors = self._survivors()
        away = {scenario.victim} if scenario.fault in SILENCES else set()
        survivors = [p for p in survivors if p.rank not in away]
        others = [p for p in self.processes if p not in survivors and p.rank not in away]
        if not survivors or not all(p.reap() for p in others):
            return
        for process in survivors:
            process.command(RECOVER)
        over = lambda p: self._has("recovered", p.rank) or self._has("lost", p.rank)  # noqa: E731
        self._await(
            lambda: all(over(p) or p.reap() for p in survivors),
            "shrink",
            20.0,
            lambda: [p.rank for p in survivors if not over(p)],
        )

    def _has(self, event: str, rank: int | None = None) -> bool:
        return bool(self.outcome.of(event, rank))

    def _told(self, process: Process) -> bool:
        rank = process.rank
        return self._has("error", rank) or self._has("done", rank) or process.reap()

    def _all_told(self) -> bool:
        return not self._untold()

    def _untold(self) -> list[int]:
        absent = set()
        if self._has("fault") and self.scenario.fault in (Fault.STOP, Fault.OMIT):
            absent = {self.scenario.victim}
        return [p.rank for p in self.processes if p.rank not in absent and not self._told(p)]

    def _await(
        self,
        condition: Callable[[], bool],
        phase: str,
        seconds: float = PATIENCE,
        who: Callable[[], list[int]] = list,
    ) -> bool:
        """Collects events until the condition holds. Otherwise, notes a hang and returns False."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                ranks = who() or [self.scenario.victim]
                self.outcome.hangs += [f"rank {rank} hangs in {phase}" for rank in ranks]
                self._show_stacks(ranks)
                return False
            self._collect(0.02)
        return True

    def _collect(self, seconds: float) -> None:
        opened = {p.events: p for p in self.processes if p.events >= 0}
        if not opened:
            time.sleep(seconds / 4)
            return
        for descriptor in select.select(list(opened), [], [], seconds)[0]:
            self.outcome.events += opened[descriptor].read()

    def _show_stacks(self, ranks: list[int]) -> None:
        for rank in ranks:
            self.processes[rank].signal(signal.SIGUSR1)
        time.sleep(0.2)

    def _end(self) -> None:
        """Ends what is left of the processes, and closes everything."""
        running = [p for p in self.processes if not p.reap()]
        for process in running:
            process.signal(signal.SIGKILL)
        for process in self.processes:
            while not process.reap():
                time.sleep(0.001)
            # A rank that had to be killed here has been counted as a hang.
            self.outcome.codes[process.rank] = process.code or 0
            while process.events >= 0:
                self.outcome.events += process.read()
            process.close()
        if self.mpi is not None:
            self.mpi.close()
        self.stderr.seek(0)
        text = self.stderr.read().decode(errors="replace")
        self.outcome.stderr = text[-6000:]
        self.outcome.healed = healing_times(text)
        self.stderr.close()
        self.hostfile.close()
        self.scenario_file.close()
        self._mend_network()
        if self.disk is not None:
            self.disk.close()
