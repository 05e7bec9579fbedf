"""Worker processes, one per rank of a job of MLX."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from free_port import free_port
from worker_pool import Origin, Task, WorkerPool, start_spawned

DEADLINE = 120.0
#: Timeout in seconds of a call that should succeed, for a machine that may be busy.
TIMEOUT = 60


@functools.cache
def _origin(*more: str) -> Origin:
    """Returns the fork server whose processes have imported the common modules and `more`."""
    return Origin("mlx.core", "mlx.nn", "numpy", "pytest", *more)


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


def _prepare(environment: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith(("MCCL_", "MLX_"))]:
        del os.environ[name]
    os.environ.update(environment)
    import mlx.core as mx

    mx.set_default_device(mx.cpu)


class MlxRanks(WorkerPool):
    """Runs functions on all ranks at once. `mccl.mlx.init()` joins all of them into one job.

    `spawned` processes run the interpreter's exit steps, as a Python program does. Other processes
    skip those. They fork from a server that has imported `imported` once for all of them.
    """

    patience = 30

    def __init__(
        self, size: int, spawned: bool = False, imported: Sequence[str] = (), **settings: str
    ) -> None:
        super().__init__(size, start_spawned if spawned else _origin(*imported).start, daemon=True)
        self._settings = settings

    def __enter__(self) -> MlxRanks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def preparations(self) -> list[Task]:
        port = free_port()
        return [
            (_prepare, (job_environment(rank, self.size, port) | self._settings,))
            for rank in range(self.size)
        ]

    def run(self, function: Callable[..., Any], *arguments: Any, deadline: float = DEADLINE):
        """Runs `function(*arguments)` on every rank and returns the results in rank order."""
        return self.run_each(function, [arguments] * self.size, deadline)

    def run_each(
        self, function: Callable[..., Any], arguments: Sequence[tuple], deadline: float = DEADLINE
    ):
        """Runs `function` on every rank with the arguments given for that rank."""
        return self.results([(function, own) for own in arguments], deadline)

    def answers_of(
        self, function: Callable[..., Any], arguments: Sequence[tuple], deadline: float = DEADLINE
    ) -> list[tuple[bool, Any]]:
        """Returns for each rank whether its call returned, and its result or what failed."""
        return self.answers([(function, own) for own in arguments], deadline)
