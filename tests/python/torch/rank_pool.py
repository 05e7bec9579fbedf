"""Worker processes, one per rank, that form process groups of torch."""

from __future__ import annotations

import contextlib
import os
import tempfile
from datetime import timedelta
from pathlib import Path

from worker_pool import Origin, RankError, Task, WorkerPool

SIZE = 4
DEADLINE = 90.0
TIMEOUT = timedelta(seconds=30)

_ORIGIN = Origin("torch", "torch.distributed", "pytest")


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


def _prepare(further: Task | None) -> None:
    os.environ["MCCL_PORT_BASE"] = "0"
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    import mccl  # noqa: F401  # registers the backend, installed or not

    torch.set_num_threads(1)
    if further:
        further[0](*further[1])


class RankPool(WorkerPool):
    """Runs functions on all ranks at once. All tests of the pool share the default group.

    `prepare` is a function with its arguments that each process runs before its first test.
    """

    def __init__(self, size: int = SIZE, prepare: Task | None = None) -> None:
        super().__init__(size, _ORIGIN.start)
        self._prepare = prepare
        self._folder = tempfile.TemporaryDirectory(prefix="mccl-torch-")
        self._groups = 0
        self._has_group = False

    def preparations(self):
        return [(_prepare, (self._prepare,))] * self.size

    def run(self, function, *args, deadline: float = DEADLINE, group: bool = True):
        """Runs `function(*args)` on every rank and returns the results in rank order.

        If `group` is false, the default group is destroyed first.
        """
        if group and not self._has_group:
            self.start_group()
        if not group:
            self._end_group()
        try:
            return self.results([(function, args)] * self.size, deadline)
        except RankError:
            self._end_group()
            raise

    def run_each(self, function, arguments, deadline: float = DEADLINE):
        """Runs `function` on every rank with the arguments given for that rank, without a default
        group.
        """
        self._end_group()
        return self.results([(function, args) for args in arguments], deadline)

    def run_and_break(self, function, *args, deadline: float = DEADLINE):
        """Runs a function that leaves the default group failed. Destroys the group afterwards."""
        try:
            return self.run(function, *args, deadline=deadline)
        finally:
            self._end_group()

    def start_group(self, **options) -> None:
        self._end_group()
        self._groups += 1
        tasks = [
            (_start_group, (self._folder.name, rank, self.size, self._groups, options))
            for rank in range(self.size)
        ]
        self.results(tasks, DEADLINE)
        self._has_group = True

    def store_path(self) -> str:
        self._groups += 1
        return str(Path(self._folder.name) / f"store{self._groups}")

    def close(self) -> None:
        super().close()
        self._has_group = False

    def _end_group(self) -> None:
        if self._has_group and self._workers:
            self._has_group = False
            self.results([(end_group, ())] * self.size, DEADLINE)


def _start_group(folder: str, rank: int, size: int, number: int, options: dict) -> None:
    start_group(folder, rank, size, number, **options)
