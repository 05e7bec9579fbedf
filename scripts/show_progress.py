#!/usr/bin/env python3
"""Runs a build and shows its progress.

show_progress.py NAME LOG COMMAND...

A terminal shows ninja's latest line; other output gets one line every ten seconds. Compiler
warnings and skipped extensions are always shown. The full output is written to LOG. If the command
fails, this program shows the part of LOG with the error, and returns the command's status.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

SECONDS_BETWEEN_LINES = 10
STEP = re.compile(r"\s*\[(\d+)/(\d+)\] (.*)")
#: Removes CMake's folder from the names of objects.
OBJECT = re.compile(r"(?:src/|tests/|bindings/)?(\S*)CMakeFiles/[^/]+\.dir/(\S+?)(?:\.o|\.gch)$")
SHOWN = re.compile(r"(: warning: )|(extension: )")
FAILED = re.compile(r"\s*FAILED: |.*\b[Ee]rror\b.*")
LINES_AT_FAILURE = 60


class Progress:
    """Selects the lines of one build to show."""

    def __init__(self, name: str, terminal: bool) -> None:
        self._name = name
        self._terminal = terminal
        self._start = self._shown = time.monotonic()
        self.steps = 0

    def see(self, line: str) -> None:
        """Shows a build step, a compiler warning or a skipped extension; ignores other lines."""
        step = STEP.match(line)
        if step is None:
            if SHOWN.search(line):
                self._write(f"{self._name}: {line.strip()}", lasting=True)
            return
        done, total, what = step.groups()
        self.steps = int(done)
        now = time.monotonic()
        if self._terminal or now - self._shown >= SECONDS_BETWEEN_LINES:
            self._shown = now
            self._write(f"{self._name}: {done} of {total}, {label(what)}", lasting=False)

    def end(self, succeeded: bool) -> None:
        """Shows how the build ended."""
        seconds = round(time.monotonic() - self._start)
        took = f"{seconds // 60} min {seconds % 60} s"
        verb = "done" if succeeded else "failed"
        self._write(f"{self._name}: {verb}, {self.steps} steps in {took}", lasting=True)

    def _write(self, text: str, lasting: bool) -> None:
        if self._terminal:
            print("\r\033[K" + text, end="\n" if lasting else "", flush=True)
        else:
            print(text, flush=True)


def label(what: str) -> str:
    """Shortens ninja's description to the source that is compiled or the program that is linked."""
    last = what.split(" ")[-1]
    found = OBJECT.search(last)
    return "".join(found.groups()) if found else last


def what_failed(log: Path) -> str:
    """Returns the part of the log that contains the error."""
    lines = log.read_text(errors="replace").splitlines()
    last = max(len(lines) - LINES_AT_FAILURE, 0)
    first = next((i for i, line in enumerate(lines) if FAILED.match(line)), last)
    return "\n".join(lines[first : first + LINES_AT_FAILURE])


def main() -> int:
    """Runs the command line."""
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    name, log, *command = sys.argv[1:]
    path = Path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    progress = Progress(name, sys.stdout.isatty())
    with (
        path.open("w") as kept,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        for line in process.stdout:
            kept.write(line)
            progress.see(line)
    progress.end(process.returncode == 0)
    if process.returncode != 0:
        print(f"{what_failed(path)}\n{name}: the full output is in {path}", file=sys.stderr)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
