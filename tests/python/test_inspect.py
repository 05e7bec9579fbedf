"""Tools that look at a running job: mccl dump."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import program


def run(*words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs the program and checks its exit status."""
    command = [str(program()), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done
    return done


def children_of(pid: int) -> list[int]:
    """Lists the processes that `pid` has started."""
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def wait_until(condition, patience: float = 60):
    """Returns the first true value of `condition()`."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise TimeoutError(condition)


def record_of(pid: int) -> dict | None:
    """Returns the flight record of a process once it has made a call."""
    done = subprocess.run([program(), "dump", str(pid)], capture_output=True, text=True)
    record = json.loads(done.stdout) if done.returncode == 0 else {"calls": []}
    return record if record["calls"] else None


@pytest.fixture
def job(tmp_path: Path) -> Iterator[list[int]]:
    """A job of two ranks, which calls all_reduce for minutes; returns their processes."""
    environment = {
        **os.environ,
        "MCCL_FLIGHT_RECORDER_FILE": f"{tmp_path}/%r.json",
        "MCCL_FLIGHT_RECORDER_SIGNAL": "USR1",
    }
    words = [program(), "bench", "all_reduce", "--sizes", "8", "--seconds", "300", "--no-bounds"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as bench:
        try:
            ranks = wait_until(lambda: [p for p in children_of(bench.pid) if record_of(p)][1:])
            yield [p for p in children_of(bench.pid) if record_of(p)] if ranks else []
        finally:
            bench.terminate()


def test_a_running_process_is_asked_for_its_calls(job, tmp_path):
    records = [record_of(pid) for pid in job]
    assert sorted(record["rank"] for record in records) == [0, 1]
    assert len({record["job"] for record in records}) == 1
    last = records[0]["calls"][-1]
    assert (last["call"], last["bytes"], last["state"]) == ("all_reduce", 8, "done")
    file = tmp_path / "record.json"
    run("dump", job[0], "-o", file)
    assert json.loads(file.read_text())["pid"] == job[0]


def test_a_signal_writes_the_record(job, tmp_path):
    record = record_of(job[0])
    os.kill(job[0], signal.SIGUSR1)
    path = tmp_path / f"{record['rank']}.json"
    wait_until(path.exists)
    assert json.loads(path.read_text())["reason"] == "signal"
    assert record_of(job[0])["calls_made"] > record["calls_made"]


def test_a_stopped_process_does_not_answer(job):
    os.kill(job[0], signal.SIGSTOP)
    try:
        assert "stopped" in run("dump", job[0], status=1).stderr
    finally:
        os.kill(job[0], signal.SIGCONT)


def test_a_process_without_ranks():
    message = run("dump", os.getpid(), status=2).stderr
    assert f"process {os.getpid()} has no socket" in message


def test_a_process_that_does_not_exist():
    dead = subprocess.Popen(["true"])
    dead.wait()
    assert f"there is no process {dead.pid}" in run("dump", dead.pid, status=2).stderr


@pytest.mark.parametrize("word", ["-1", "0", "x", ""])
def test_a_word_that_is_no_process(word):
    run("dump", word, status=2)
