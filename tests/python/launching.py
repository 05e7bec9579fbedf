"""Helpers of the `mccl launch` tests: they start jobs and find what a job leaves behind."""

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
    """Returns the path of the `mccl` program.

    Prefers the build folder's program if BUILD_FOLDER is set, and the installed one otherwise.
    """
    places = [Path(sysconfig.get_path("scripts")) / "mccl", BUILD / "src/cli/mccl"]
    if "BUILD_FOLDER" in os.environ:
        places.reverse()
    found = [place for place in places if place.is_file()]
    assert found, f"none of {[str(p) for p in places]} is there: run `make build`"
    return found[0]


def environment(**settings: str) -> dict[str, str]:
    """Returns this process's environment with `settings` in place of all MCCL_ variables."""
    return {k: v for k, v in os.environ.items() if not k.startswith("MCCL_")} | settings


def heed_signals() -> None:
    """Restores the default signal handlers. Called between fork and exec.

    The tests may run where these signals are ignored, for example under nohup or in a shell's
    background job. Children would inherit that.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def start(*arguments: object, before: tuple = (), **options: object) -> subprocess.Popen:
    """Starts a job. `before` holds words that precede the program's name, such as a wrapper
    command.
    """
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
    """Runs a job until it exits, and checks its exit status."""
    if text_in is not None:
        options["stdin"] = subprocess.PIPE
    job = start(*arguments, **options)
    stdout, stderr = job.communicate(text_in, timeout=PATIENCE)
    assert job.returncode == status, (job.returncode, stdout, stderr)
    return subprocess.CompletedProcess(arguments, status, stdout, stderr)


def wait_until(condition, what: object = ""):
    """Polls `condition` until it is true, sleeping between polls, and returns its value. Fails with
    `what` after PATIENCE s.
    """
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return value


def unused_folders() -> set[str]:
    """Returns the folders of jobs without a running rank. Other jobs may run beside a test."""
    names = {path.name for path in Path(tempfile.gettempdir()).glob("mccl-launch.*")}
    variables = [
        value
        for process in psutil.process_iter(["environ"])
        for value in (process.info["environ"] or {}).values()
        if "mccl-launch." in value
    ]
    return {name for name in names if not any(name in value for value in variables)}


def marked(mark: str) -> list[psutil.Process]:
    """Returns the running processes that have `mark` as an argument of their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def start_with_pipes(command: list[str], **settings: str) -> subprocess.Popen[str]:
    """Starts a process that heeds signals. The arguments `settings` are environment variables."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**settings),
        preexec_fn=heed_signals,
    )
