"""Worker processes, one per rank, that serve all tests of a file: importing torch takes seconds."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

from pool_origin import Origin

SIZE = 4
DEADLINE = 90.0
TIMEOUT = timedelta(seconds=30)

_DIED = (False, "the process died")
_HERE = str(Path(__file__).parent)
_ORIGIN = Origin("torch", "torch.distributed", "pytest")


class RankError(AssertionError):
    """Reports each failure with the ranks on which it happened."""


def start_group(folder: str, rank: int, size: int, number: int, **options) -> None:
    """Makes the default group. Each `number` selects a separate store."""
    import torch.distributed as dist

    store = dist.FileStore(str(Path(folder) / f"store{number}"), size)
    options = {"backend": "mccl", "timeout": TIMEOUT, **options}
    dist.init_process_group(store=store, rank=rank, world_size=size, **options)


def end_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


def _serve(connection, rank: int, size: int, folder: str) -> None:
    sys.path.insert(0, _HERE)
    os.environ["MCCL_PORT_BASE"] = "0"
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    import mccl  # noqa: F401  # registers the backend, installed or not

    torch.set_num_threads(1)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        function, args, deadline = task
        # Dumps the stack of a rank that hangs, before the pool is killed.
        faulthandler.dump_traceback_later(max(deadline - 2, 1), exit=False)
        try:
            answer = (True, function(*args))
        except BaseException:
            answer = (False, traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
        connection.send(answer)


class RankPool:
    """Runs functions on all ranks at once. All tests of the pool share the default group."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory(prefix="mccl-torch-")
        self._workers: list[tuple[multiprocessing.Process, multiprocessing.connection.Connection]]
        self._workers = []
        self._groups = 0
        self._has_group = False

    def run(self, function, *args, deadline: float = DEADLINE, group: bool = True):
        """Runs `function(*args)` on every rank and returns the results in rank order.

        If `group` is false, the default group is destroyed first.
        """
        if group and not self._has_group:
            self.start_group()
        if not group:
            self._end_group()
        try:
            return self._everywhere([(function, args)] * self.size, deadline)
        except RankError:
            self._end_group()
            raise

    def run_each(self, function, arguments, deadline: float = DEADLINE):
        """Runs `function` on every rank with the arguments given for that rank, without a default
        group.
        """
        self._end_group()
        return self._everywhere([(function, args) for args in arguments], deadline)

    def run_and_break(self, function, *args, deadline: float = DEADLINE):
        """Runs a function that leaves the default group failed. Destroys the group afterwards."""
        try:
            return self.run(function, *args, deadline=deadline)
        finally:
            self._end_group()

    def start_group(self, **options) -> None:
        self._end_group()
        self._groups += 1
        self._everywhere(
            [
                (_start_group, (self._folder.name, rank, self.size, self._groups, options))
                for rank in range(self.size)
            ],
            DEADLINE,
        )
        self._has_group = True

    def store_path(self) -> str:
        self._groups += 1
        return str(Path(self._folder.name) / f"store{self._groups}")

    def close(self) -> None:
        for process, connection in self._workers:
            connection.close()
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers = []
        self._has_group = False

    def _end_group(self) -> None:
        if self._has_group and self._workers:
            self._has_group = False
            self._everywhere([(end_group, ())] * self.size, DEADLINE)

    def _start_workers(self) -> None:
        for rank in range(self.size):
            here, there = multiprocessing.Pipe()
            process = _ORIGIN.start(_serve, (there, rank, self.size, self._folder.name))
            there.close()
            self._workers.append((process, here))

    def _everywhere(self, tasks, deadline: float):
        if not self._workers:
            self._start_workers()
        for (_, connection), (function, args) in zip(self._workers, tasks, strict=True):
            connection.send((function, args, deadline))
        end = time.monotonic() + deadline
        answers = [self._answer(rank, end) for rank in range(self.size)]
        if any(answer is None or answer is _DIED for answer in answers):
            for process, _ in self._workers:
                process.kill()
            self.close()
        failures: dict[str, list[int]] = {}
        for rank, answer in enumerate(answers):
            if answer is None or not answer[0]:
                text = "no answer in time" if answer is None else answer[1]
                failures.setdefault(text, []).append(rank)
        if failures:
            raise RankError("\n".join(f"ranks {who}: {what}" for what, who in failures.items()))
        return [answer[1] for answer in answers]

    def _answer(self, rank: int, end: float):
        _, connection = self._workers[rank]
        try:
            if connection.poll(max(end - time.monotonic(), 0)):
                return connection.recv()
        except (EOFError, ConnectionError):
            return _DIED
        return None


def _start_group(folder: str, rank: int, size: int, number: int, options: dict) -> None:
    start_group(folder, rank, size, number, **options)
