"""Worker processes, one per rank, that form worlds of arrays."""

from __future__ import annotations

import os

from free_port import free_port
from worker_pool import Origin, RankError, WorkerPool

DEADLINE = 60.0

_ORIGIN = Origin("numpy", "ml_dtypes", "pytest")

__all__ = ["DEADLINE", "RankError", "WorldPool", "free_address"]


def free_address() -> str:
    """Returns an address at which rank 0 can serve the store."""
    return f"127.0.0.1:{free_port()}"


def _prepare() -> None:
    os.environ["MCCL_PORT_BASE"] = "0"


def _in_world(settings, function, args):
    import mccl.distributed as dist

    return function(dist.init(**settings), *args)


def _leave() -> None:
    import mccl.distributed as dist

    dist.shutdown()


class WorldPool(WorkerPool):
    """Runs functions on all ranks at once. All tests of the pool share one world."""

    def __init__(self, size: int, **settings) -> None:
        super().__init__(size, _ORIGIN.start)
        self._settings = {"connect_timeout": 30, "timeout": 30, "size": size, **settings}

    def preparations(self):
        return [(_prepare, ())] * self.size

    def run(self, function, *args, deadline: float = DEADLINE):
        """Runs `function(world, *args)` on every rank and returns the results in rank order."""
        return self.run_each([(function, args)] * self.size, deadline)

    def run_each(self, tasks, deadline: float = DEADLINE, lost=()):
        """Runs a different function with different arguments on each rank.

        Ranks in `lost` are expected to die; their result is None.
        """
        if not self._workers:
            self._settings["root"] = free_address()
        tasks = [
            (_in_world, (self._settings | {"rank": rank}, *task)) for rank, task in enumerate(tasks)
        ]
        well = False
        try:
            results = self.results(tasks, deadline, lost)
            well = not lost
            return results
        finally:
            if not well:
                self.kill()

    def run_and_leave(self, function, *args, deadline: float = DEADLINE):
        """Runs a function that breaks the world. The next call makes a new world."""
        try:
            return self.run(function, *args, deadline=deadline)
        finally:
            self.results([(_leave, ())] * self.size, DEADLINE)
