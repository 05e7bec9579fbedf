#!/usr/bin/env python3
"""Shows mccl status, mccl trace and mccl top on real jobs, and writes what they print to a page.

Replaces each block of text that follows a line <!-- capture: NAME --> in docs/inspect.md. `make
captures` runs it; it needs tmux, and the extra `top` of the package.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PAGE = Path(__file__).parents[1] / "docs" / "inspect.md"
#: Rank 1 stops to make calls after the first eleven.
LATE = """
import time, numpy, mccl.distributed as dist
world = dist.init()
x = numpy.ones(1000, numpy.float32)
for call in range(20):
    if world.rank == 1 and call == 11:
        time.sleep(600)
    world.all_reduce(x)
"""
BUSY = """
import time, numpy, mccl.distributed as dist
world = dist.init()
x = numpy.ones(16384, numpy.float32)
while True:
    world.all_reduce(x)
    time.sleep(0.0001)
"""
COLUMNS = 110
PATIENCE_S = 60


def wait_until(found: Callable[[], object]) -> object:
    """Returns the result of `found` once it is true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.2)
    sys.exit("captures: a job did not reach the state to be shown")


def output(*words: object) -> str:
    """Returns what a command prints, even if it fails."""
    return subprocess.run([str(word) for word in words], capture_output=True, text=True).stdout


@contextmanager
def job(program: str, ranks: int, folder: Path) -> Iterator[int]:
    """Runs `program` on `ranks` ranks, and returns the process of the launcher."""
    script = folder / "job.py"
    script.write_text(program)
    words = ["mccl", "launch", "-n", str(ranks), sys.executable, script]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as launcher:
        try:
            yield launcher.pid
        finally:
            launcher.terminate()


def pending(launcher: int) -> dict | None:
    """Returns the status of a launcher's job once a rank has waited for five seconds."""
    status = json.loads(output("mccl", "status", "--json") or "{}")
    own = {child.pid for child in psutil.Process(launcher).children(recursive=True)}
    for rank in (each for each in status.get("ranks", []) if each["pid"] in own):
        for group in rank.get("groups", []):
            if any(call["waited_s"] > 4.5 for call in group["pending"]):
                return status
    return None


def capture_waiting(folder: Path) -> dict[str, str]:
    """Captures mccl status and mccl trace while a rank is late."""
    with job(LATE, 2, folder) as launcher:
        status = wait_until(lambda: pending(launcher))
        pids = [rank["pid"] for rank in status["ranks"]]
        shown = output("mccl", "status", "--stuck-after", "2")
        for pid in pids:
            output("mccl", "dump", pid, "-o", folder / f"{pid}.json")
        records = [folder / f"{pid}.json" for pid in pids]
        found = output("mccl", "trace", *records, "-o", folder / "trace.json")
    names = " ".join(str(pid) for pid in pids)
    return {
        "status": f"$ mccl status --stuck-after 2\n{shown}",
        "trace": f"$ for pid in {names}; do mccl dump $pid -o $pid.json; done\n"
        f"$ mccl trace {names.replace(' ', '.json ')}.json -o trace.json\n{found}",
    }


def capture_top(folder: Path) -> dict[str, str]:
    """Captures mccl top, in a terminal of tmux, on a job that makes calls all the time."""
    tmux = ("tmux", "-L", f"captures-{uuid.uuid4()}")
    with job(BUSY, 3, folder):
        wait_until(lambda: "healthy" in output("mccl", "status"))
        output(*tmux, "new-session", "-d", "-x", COLUMNS, "-y", 8, "mccl top")
        try:
            screen = wait_until(
                lambda: re.search(r"[▁-█]{9}", text := output(*tmux, "capture-pane", "-p")) and text
            )
        finally:
            output(*tmux, "kill-server")
    return {"top": "\n".join(line.rstrip() for line in screen.splitlines() if line.strip())}


def main() -> None:
    """Takes all captures, and only then changes the page."""
    if missing := [name for name in ("mccl", "tmux") if not shutil.which(name)]:
        sys.exit(f"captures: {' and '.join(missing)} not found in PATH")
    with tempfile.TemporaryDirectory() as name:
        captured = {**capture_waiting(Path(name)), **capture_top(Path(name))}
    page = PAGE.read_text()
    for name, text in captured.items():
        block = re.compile(rf"(<!-- capture: {name} -->\n+```text\n).*?(```)", re.S)
        page, count = block.subn(lambda at, text=text: f"{at[1]}{text.rstrip()}\n{at[2]}", page)
        if count != 1:
            sys.exit(f"captures: {PAGE.name} has {count} blocks for {name}, but must have one")
    PAGE.write_text(page)
    print(f"captures: {', '.join(captured)} in {PAGE}")


if __name__ == "__main__":
    main()
