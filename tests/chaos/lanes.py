"""Runs trials in several processes at once, each with a /dev/shm and hosts of its own."""

import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator

import faces
import traffic
from assess import assess
from hosts import Hosts
from job import Job, Outcome
from record import Record
from scenario import RING, draw

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 1 << 18


def run_trial(seed: int, allowance: float, hosts: Hosts | None) -> tuple[Record, Outcome | None]:
    """Runs the trial of this seed. It is left out without the hosts or framework that it needs."""
    scenario = draw(seed)
    if (scenario.needs_root and hosts is None) or faces.is_missing(scenario.face):
        return Record.of_none(scenario), None
    outcome = Job(scenario, hosts if scenario.needs_hosts else None).run()
    return Record.of(outcome, assess(outcome, allowance)), outcome


def prepare(seeds: Iterable[int]) -> None:
    """Makes and imports what the ranks of these trials need, before the processes are forked."""
    traffic.prepare()
    for face in {draw(seed).face for seed in seeds}:
        faces.prepare(face)


def privatize() -> bool:
    """Gives this process a /dev/shm of its own, so that what a trial leaves there is seen.

    Returns False without the right to do so.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not sys.platform.startswith("linux") or libc.unshare(_CLONE_NEWNS) != 0:
        return False
    libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    return libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777,size=1g") == 0


def make_hosts() -> Hosts | None:
    return None if Hosts.missing() else Hosts(RING)


class _Lane:
    def __init__(self, seeds: int, here: int, allowance: float, others: list["_Lane"]) -> None:
        self.records, there = os.pipe()
        self.buffer = b""
        self.pid = os.fork()
        if self.pid == 0:
            # A lane ends once no process can give it seeds.
            for descriptor in (here, self.records, *(other.records for other in others)):
                os.close(descriptor)
            status = 1
            try:
                _serve(seeds, there, allowance)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(there)


def _serve(seeds: int, records: int, allowance: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ends with the trial that runs
    privatize()
    hosts = make_hosts()
    try:
        while seed := os.read(seeds, 8):
            record, _ = run_trial(int(seed), allowance, hosts)
            os.write(records, record.line().encode() + b"\n")
    finally:
        if hosts is not None:
            hosts.close()


def run_all(seeds: Iterable[int], lanes: int, allowance: float, end: float) -> Iterator[Record]:
    """Yields the record of each trial as it ends. Starts none after the time `end`."""
    seeds = list(seeds)
    prepare(seeds)
    waiting = iter(seeds)
    there, here = os.pipe()
    running: list[_Lane] = []
    for _ in range(lanes):
        running.append(_Lane(there, here, allowance, running))
        _give(waiting, here, end)
    os.close(there)
    try:
        while running:
            for lane in _readable(running):
                data = os.read(lane.records, 1 << 20)
                if not data:
                    running.remove(lane)
                    os.close(lane.records)
                    if os.waitpid(lane.pid, 0)[1] != 0:
                        raise RuntimeError("a process that runs trials has failed; see above")
                    continue
                *lines, lane.buffer = (lane.buffer + data).split(b"\n")
                for line in lines:
                    if here >= 0 and not _give(waiting, here, end):
                        os.close(here)
                        here = -1
                    yield Record.from_line(line.decode())
    finally:
        if here >= 0:
            os.close(here)
        for lane in running:
            os.close(lane.records)
            os.waitpid(lane.pid, 0)


def _readable(lanes: list[_Lane]) -> list[_Lane]:
    ready = select.select([lane.records for lane in lanes], [], [])[0]
    return [lane for lane in lanes if lane.records in ready]


def _give(waiting: Iterator[int], pipe: int, end: float) -> bool:
    """Gives the lanes one more seed, in eight digits. Returns False if there is none."""
    seed = next(waiting, None) if time.monotonic() < end else None
    if seed is None:
        return False
    os.write(pipe, f"{seed:8d}".encode())
    return True
