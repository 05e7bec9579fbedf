"""Worker processes, one per rank of a job, that serve all tests of a file."""

from __future__ import annotations

import faulthandler
import functools
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from free_port import free_port
from pool_origin import Origin

DEADLINE = 120.0
#: Timeout in seconds of a call that should succeed, for a machine that may be busy.
TIMEOUT = 60


@functools.cache
def _origin(*more: str) -> Origin:
    """Returns the fork server whose processes have imported the common modules and `more`."""
    return Origin("mlx.core", "mlx.nn", "numpy", "pytest", *more)


class RankError(AssertionError):
    """Reports each failure with the ranks on which it happened."""


def job_environment(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "MCCL_RANK": str(rank),
        "MCCL_WORLD_SIZE": str(size),
        "MCCL_ROOT": f"127.0.0.1:{port}",
        "MCCL_PORT_BASE": "0",
        "MCCL_TIMEOUT": str(TIMEOUT),
        "MCCL_LISTEN_ADDR": "127.0.0.1",
    }


def clean_environment() -> dict[str, str]:
    """Returns this process's environment without the variables of a job."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("MCCL_", "MLX_"))}


def error_of(call: Callable[[], Any], kind: type[Exception] = Exception) -> str:
    """Returns the message of the exception that `call` must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")


def _serve(connection, environment: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith(("MCCL_", "MLX_"))]:
        del os.environ[name]
    os.environ.update(environment)
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    while True:
        try:
            function, arguments, deadline = connection.recv()
        except EOFError:
            return
        # Dumps the stack of a rank that hangs, before it is killed.
        faulthandler.dump_traceback_later(max(deadline - 2, 1), exit=False)
        try:
            answer = (True, function(*arguments))
        except BaseException:
            answer = (False, traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
        connection.send(answer)


class MlxRanks:
    """Runs functions on all ranks at once. `mccl.mlx.init()` joins all of them into one job.

    `spawned` processes run the interpreter's exit steps, as a Python program does. Other processes
    skip those. They fork from a server that has imported `imported` once for all of them.
    """

    def __init__(
        self, size: int, spawned: bool = False, imported: Sequence[str] = (), **settings: str
    ) -> None:
        self.size = size
        self._spawned = spawned
        self._imported = imported
        self._settings = settings
        self._workers: list[tuple[Any, Any]] = []

    def __enter__(self) -> MlxRanks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, function: Callable[..., Any], *arguments: Any, deadline: float = DEADLINE):
        """Runs `function(*arguments)` on every rank and returns the results in rank order."""
        return self.run_each(function, [arguments] * self.size, deadline)

    def run_each(
        self, function: Callable[..., Any], arguments: Sequence[tuple], deadline: float = DEADLINE
    ):
        """Runs `function` on every rank with the arguments given for that rank."""
        answers = self.answers(function, arguments, deadline)
        failures: dict[str, list[int]] = {}
        for rank, (good, value) in enumerate(answers):
            if not good:
                failures.setdefault(value, []).append(rank)
        if failures:
            raise RankError("\n".join(f"ranks {who}: {what}" for what, who in failures.items()))
        return [value for _, value in answers]

    def answers(
        self, function: Callable[..., Any], arguments: Sequence[tuple], deadline: float = DEADLINE
    ) -> list[tuple[bool, Any]]:
        """Returns for each rank whether it returned, and its result or the description of its
        failure.
        """
        if not self._workers:
            self._start()
        for (_, connection), own in zip(self._workers, arguments, strict=True):
            connection.send((function, own, deadline))
        end = time.monotonic() + deadline
        answers = [self._answer(connection, end) for _, connection in self._workers]
        if any(value in ("no answer in time", "the process died") for _, value in answers):
            for process, _ in self._workers:
                process.kill()
            self.close()
        return answers

    def pid(self, rank: int) -> int:
        return self._workers[rank][0].pid

    def close(self) -> None:
        for process, connection in self._workers:
            connection.close()
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers = []

    def _start(self) -> None:
        port = free_port()
        for rank in range(self.size):
            here, there = multiprocessing.Pipe()
            arguments = (there, job_environment(rank, self.size, port) | self._settings)
            if self._spawned:
                context = multiprocessing.get_context("spawn")
                process = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
            else:
                process = _origin(*self._imported).start(_serve, arguments, daemon=True)
            there.close()
            self._workers.append((process, here))

    @staticmethod
    def _answer(connection, end: float) -> tuple[bool, Any]:
        try:
            if connection.poll(max(end - time.monotonic(), 0)):
                return connection.recv()
        except (EOFError, ConnectionError):
            return False, "the process died"
        return False, "no answer in time"
