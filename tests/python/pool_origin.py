"""Fork servers from which pools start their worker processes.

Importing torch takes seconds of a core. A child of a process that has imported it does not import
it again. multiprocessing keeps only one fork server, with the imports of its first user, so each
kind of pool has its own server here.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess


class Origin:
    """Starts processes in which `modules` are already imported. The first start imports them."""

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
