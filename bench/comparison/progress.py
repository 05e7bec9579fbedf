"""Shows the progress of a run on stderr: a bar on a terminal, else one line per step."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """Counts steps towards a known total."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.began = time.monotonic()
        console = Console(stderr=True)
        self.bar: Bar | None = None
        if console.is_terminal:
            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                       TextColumn("{task.description}"))  # fmt: skip
            self.bar = Bar(*columns, console=console, transient=True)
            self.bar.add_task("", total=total)

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def step(self, words: str) -> None:
        """Reports that a step begins."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done, description=words)
        else:
            elapsed = time.monotonic() - self.began
            print(f"[{self.done + 1:3}/{self.total}, {elapsed:5.0f} s] {words}", file=sys.stderr,
                  flush=True)  # fmt: skip
        self.done += 1
