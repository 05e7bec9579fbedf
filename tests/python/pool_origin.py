"""Where pools of worker processes come from: one process that has imported what they need.

Importing torch takes seconds of a core; a child of a process that has done it takes none of them.
multiprocessing keeps one such process, with the imports of whoever came first, so that each kind of
pool has one of its own here.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess


class Origin:
    """Starts processes in which `modules` are imported; begins with the first of them."""

    def __init__(self, *modules: str) -> None:
        self._server = forkserver.ForkServer()
        self._server.set_forkserver_preload(list(modules))

    def start(self, target: Callable[..., None], args: tuple, **options) -> ForkServerProcess:
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=target, args=args, **options)
        usual = forkserver.connect_to_new_process
        forkserver.connect_to_new_process = self._server.connect_to_new_process
        try:
            process.start()
        finally:
            forkserver.connect_to_new_process = usual
        return process
