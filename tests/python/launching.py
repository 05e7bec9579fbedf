"""What the tests of `mccl launch` share: the program, and what must not remain after a job."""

import os
import signal
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD_FOLDER", "build/release")
PATIENCE = 60


def program() -> Path:
    """The program of the build folder, where one is given; else the installed one."""
    places = [Path(sysconfig.get_path("scripts")) / "mccl", BUILD / "src/cli/mccl"]
    if "BUILD_FOLDER" in os.environ:
        places.reverse()
    found = [place for place in places if place.is_file()]
    assert found, f"none of {[str(p) for p in places]} is there: run `make build`"
    return found[0]


def environment(**settings: str) -> dict[str, str]:
    """This environment, with these settings and no others."""
    return {k: v for k, v in os.environ.items() if not k.startswith("MCCL_")} | settings


def heed_signals() -> None:
    """Between fork and exec.

    The tests may run where signals are ignored, as under nohup or behind a shell's `&`, and would
    pass that on.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def start(*arguments: object, before: tuple = (), **options: object) -> subprocess.Popen:
    """Starts a job; `before` are words before the program's name."""
    defaults = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "env": environment(),
        "preexec_fn": heed_signals,
    }
    command = [*map(str, before), str(program()), "launch", *map(str, arguments)]
    return subprocess.Popen(command, **(defaults | options))


def run(*arguments: object, status: int = 0, text_in: str | None = None, **options: object):
    """Runs a job to its end."""
    if text_in is not None:
        options["stdin"] = subprocess.PIPE
    job = start(*arguments, **options)
    stdout, stderr = job.communicate(text_in, timeout=PATIENCE)
    assert job.returncode == status, (job.returncode, stdout, stderr)
    return subprocess.CompletedProcess(arguments, status, stdout, stderr)


def wait_until(condition, what: object = "") -> None:
    """Looks until it is so, and leaves the cores to what it waits for between looks."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def folders() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("mccl-launch.*")}


def marked(mark: str) -> list[psutil.Process]:
    """Running processes with these words in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
