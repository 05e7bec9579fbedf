"""Worker processes, one per rank, that serve all tests of a file and form worlds of arrays."""

from __future__ import annotations

import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import sys
import time
import traceback
from pathlib import Path

from free_port import free_port
from pool_origin import Origin

DEADLINE = 60.0

_HERE = str(Path(__file__).parent)
_ORIGIN = Origin("numpy", "ml_dtypes", "pytest")


class RankError(AssertionError):
    """Reports each failure with the ranks on which it happened."""


def free_address() -> str:
    """Returns an address at which rank 0 can serve the store."""
    return f"127.0.0.1:{free_port()}"


def _serve(connection, rank: int, size: int, root: str) -> None:
    sys.path.insert(0, _HERE)
    os.environ["MCCL_PORT_BASE"] = "0"
    import mccl.distributed as dist

    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        function, args, deadline, settings = task
        # Dumps the stack of a rank that hangs, before the pool is killed.
        faulthandler.dump_traceback_later(max(deadline - 2, 1), exit=False)
        try:
            if settings is None:
                answer = (True, function(*args))
            else:
                world = dist.init(rank=rank, size=size, root=root, **settings)
                answer = (True, function(world, *args))
        except BaseException:
            answer = (False, traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
        connection.send(answer)


class WorldPool:
    """Runs functions on all ranks at once. All tests of the pool share one world."""

    def __init__(self, size: int, **settings) -> None:
        self.size = size
        self._settings = {"connect_timeout": 30, "timeout": 30, **settings}
        self._workers: list[tuple[multiprocessing.Process, multiprocessing.connection.Connection]]
        self._workers = []

    def run(self, function, *args, deadline: float = DEADLINE):
        """Runs `function(world, *args)` on every rank and returns the results in rank order."""
        return self._everywhere([(function, args)] * self.size, deadline, self._settings)

    def run_each(self, tasks, deadline: float = DEADLINE, lost=()):
        """Runs a different function with different arguments on each rank.

        Ranks in `lost` are expected to die; their result is None.
        """
        return self._everywhere(tasks, deadline, self._settings, lost)

    def run_and_leave(self, function, *args, deadline: float = DEADLINE):
        """Runs a function that breaks the world. The next call makes a new world."""
        try:
            return self.run(function, *args, deadline=deadline)
        finally:
            self._everywhere([(_leave, ())] * self.size, DEADLINE, None)

    def close(self) -> None:
        for process, connection in self._workers:
            connection.close()
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers = []

    def _start_workers(self) -> None:
        root = free_address()
        for rank in range(self.size):
            here, there = multiprocessing.Pipe()
            process = _ORIGIN.start(_serve, (there, rank, self.size, root))
            there.close()
            self._workers.append((process, here))

    def _everywhere(self, tasks, deadline: float, settings, lost=()):
        if not self._workers:
            self._start_workers()
        for (_, connection), (function, args) in zip(self._workers, tasks, strict=True):
            connection.send((function, args, deadline, settings))
        end = time.monotonic() + deadline
        answers = [self._answer(rank, end) for rank in range(self.size)]
        failures: dict[str, list[int]] = {}
        for rank, (well, answer) in enumerate(answers):
            if not well and rank not in lost:
                failures.setdefault(answer, []).append(rank)
        if failures or lost:
            for process, _ in self._workers:
                process.kill()
            self.close()
        if failures:
            raise RankError("\n".join(f"ranks {who}: {what}" for what, who in failures.items()))
        return [answer if well else None for well, answer in answers]

    def _answer(self, rank: int, end: float):
        _, connection = self._workers[rank]
        try:
            if connection.poll(max(end - time.monotonic(), 0)):
                return connection.recv()
        except (EOFError, ConnectionError):
            return False, "the process died"
        return False, "no answer in time"


def _leave() -> None:
    import mccl.distributed as dist

    dist.shutdown()
