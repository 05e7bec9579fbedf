"""Worker processes, one per rank, that serve all tests of a file.

Importing torch takes seconds of a core. A child of a process that has imported it does not import
it again. multiprocessing keeps only one fork server, with the imports of its first user, so each
kind of pool has its own server here.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

#: A function and its arguments.
Task = tuple[Callable[..., Any], Sequence[Any]]

_LATE = (False, "no answer in time")
_DIED = (False, "the process died")


class RankError(AssertionError):
    """Reports each failure with the ranks on which it happened."""


class Origin:
    """Starts processes in which `modules` are already imported. The first start imports them."""

    def __init__(self, *modules: str) -> None:
        self._server = forkserver.ForkServer()
        self._server.set_forkserver_preload(list(modules))

    def start(self, target: Callable[..., None], args: tuple, **options: bool) -> BaseProcess:
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=target, args=args, **options)
        usual = forkserver.connect_to_new_process
        forkserver.connect_to_new_process = self._server.connect_to_new_process
        try:
            process.start()
        finally:
            forkserver.connect_to_new_process = usual
        return process


def start_spawned(target: Callable[..., None], args: tuple, **options: bool) -> BaseProcess:
    """Starts a process that runs the interpreter's exit steps, which those of an Origin skip."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=args, **options)
    process.start()
    return process


def _serve(connection: Connection, prepare: Task) -> None:
    prepare[0](*prepare[1])
    while True:
        try:
            function, args, deadline = connection.recv()
        except EOFError:
            return
        # Dumps the stack of a rank that hangs, before the pool is killed.
        faulthandler.dump_traceback_later(max(deadline - 2, 1), exit=False)
        try:
            answer = (True, function(*args))
        except BaseException:
            answer = (False, traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
        connection.send(answer)


class WorkerPool:
    """Runs functions on all ranks at once.

    Args:
        size: The number of ranks.
        start: Starts a process: that of an Origin, or start_spawned.
        daemon: Whether the processes are daemons, which may not have children.
    """

    #: Seconds that a process may take to end.
    patience = 10

    def __init__(
        self, size: int, start: Callable[..., BaseProcess], *, daemon: bool = False
    ) -> None:
        self.size = size
        self._start = start
        self._daemon = daemon
        self._workers: list[tuple[BaseProcess, Connection]] = []

    def preparations(self) -> list[Task]:
        """Returns what the process of each rank runs first. Called when processes start."""
        raise NotImplementedError

    def answers(self, tasks: Sequence[Task], deadline: float) -> list[tuple[bool, Any]]:
        """Runs a task on each rank. Kills the pool if a rank died or did not answer in time.

        Returns:
            A pair for each rank: whether its task returned, and the result or the failure.
        """
        if not self._workers:
            for preparation in self.preparations():
                here, there = multiprocessing.Pipe()
                process = self._start(_serve, (there, preparation), daemon=self._daemon)
                self._workers.append((process, here))
                there.close()
        for (_, connection), (function, args) in zip(self._workers, tasks, strict=True):
            connection.send((function, args, deadline))
        end = time.monotonic() + deadline
        answers = [_answer(connection, end) for _, connection in self._workers]
        if _LATE in answers or _DIED in answers:
            self.kill()
        return answers

    def results(
        self, tasks: Sequence[Task], deadline: float, lost: Collection[int] = ()
    ) -> list[Any]:
        """Runs a task on each rank. A failure raises RankError, except on a rank in `lost`."""
        failures: dict[str, list[int]] = {}
        answers = self.answers(tasks, deadline)
        for rank, (good, value) in enumerate(answers):
            if not good and rank not in lost:
                failures.setdefault(value, []).append(rank)
        if failures:
            raise RankError("\n".join(f"ranks {who}: {what}" for what, who in failures.items()))
        return [value if good else None for good, value in answers]

    def pid(self, rank: int) -> int | None:
        return self._workers[rank][0].pid

    def kill(self) -> None:
        for process, _ in self._workers:
            process.kill()
        self.close()

    def close(self) -> None:
        for process, connection in self._workers:
            connection.close()
            process.join(self.patience)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers = []


def _answer(connection: Connection, end: float) -> tuple[bool, Any]:
    try:
        if connection.poll(max(end - time.monotonic(), 0)):
            return connection.recv()
    except (EOFError, ConnectionError):
        return _DIED
    return _LATE
