"""Starts the processes of one contestant, and reads the lines of its rank 0 with a time limit."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

import psutil
from comparison.contestant import Command
from peers.cells import Cell

START_LIMIT = 60.0  # seconds until the first line: importing torch takes long on a loaded machine
END_LIMIT = 15.0  # seconds from the last line to the exit


@dataclass
class Outcome:
    """The lines read. After a failure, also its reason, and the cell in which it occurred."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None
    cell: Cell | None = None


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Ends these processes and all their children."""
    everyone: list[psutil.Process] = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            everyone += [*parent.children(recursive=True), parent]
    for process in everyone:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(everyone, timeout=5)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for process in processes:
        process.wait()


@contextmanager
def started(commands: Sequence[Command], errors: IO[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Starts the processes, and ends them at the end of the with block."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for index, command in enumerate(commands):
            processes.append(
                subprocess.Popen(
                    list(command.argv),
                    env={**os.environ, **command.env},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if index == 0 else errors,
                    stderr=errors,
                    text=True,
                )
            )
        yield processes
    finally:
        end(processes)


def lines_of(stream: IO[str]) -> queue.Queue[str | None]:
    """Returns a queue of the stream's lines, followed by None."""
    found: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            found.put(line)
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    return found


def said_last(errors: IO[str]) -> str:
    """Returns the last line on stderr that has text other than dashes."""
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip(" -\n")]
    return lines[-1][:300] if lines else "no message"


def launch(
    commands: Sequence[Command], cell_limit: float, start_limit: float = START_LIMIT
) -> Outcome:
    """Runs the commands. Ends them if a cell takes longer than its limit."""
    outcome = Outcome()
    with tempfile.TemporaryFile("w+") as errors, started(commands, errors) as processes:
        lines = lines_of(processes[0].stdout)
        limit = start_limit
        while True:
            try:
                line = lines.get(timeout=limit)
            except queue.Empty:
                outcome.failure = f"no answer within {limit:g} s"
                return outcome
            if line is None:
                break
            with suppress(json.JSONDecodeError):
                limit = follow(outcome, json.loads(line), cell_limit)
        for process in processes:
            try:
                status = process.wait(timeout=END_LIMIT)
            except subprocess.TimeoutExpired:
                outcome.failure = outcome.failure or "it did not end after its last cell"
                continue
            if status != 0:
                outcome.failure = f"ended with {status}: {said_last(errors)}"
    return outcome


def follow(outcome: Outcome, line: dict[str, Any], cell_limit: float) -> float:
    """Records one line. Returns how many seconds the next one may take."""
    if "begin" in line:
        outcome.cell = Cell.parse(line["begin"])
        return cell_limit * line.get("cells", 1)
    outcome.lines.append(line)
    if outcome.cell == (line.get("collective"), line.get("bytes")):
        outcome.cell = None
    return cell_limit
