"""The live view: mccl top."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from launching import program, wait_until

from mccl.top import View, amount


def report(rank: int, calls: int, **more: object) -> dict:
    return {
        "job": "j",
        "rank": rank,
        "host": "desk",
        "pid": 40 + rank,
        "calls": calls,
        "errors": 0,
        "bytes_sent": 10 * calls,
        "bytes_received": 0,
        "answers": True,
        "groups": [],
        "peers": [],
        **more,
    }


def status(*ranks: dict) -> dict:
    return {"health": "healthy", "findings": [], "ranks": list(ranks)}


def test_rates_are_differences_between_refreshes():
    view = View()
    view.refresh(status(report(0, 100)), now=1)
    assert view.ranks[0].calls_per_s == 0
    view.refresh(status(report(0, 300)), now=3)
    assert (view.ranks[0].calls_per_s, view.ranks[0].sent) == (100, 1000)
    view.refresh(status(report(0, 0)), now=4)  # a new group's counts start at 0
    assert view.ranks[0].calls_per_s == 0
    assert list(view.history["j", 0]) == [0, 100, 0]


def test_a_row_shows_the_call_that_has_waited_longest():
    calls = [
        {"call": "send #1", "waited_s": 2.0, "waits_for": []},
        {"call": "barrier #7", "waited_s": 9.0, "waits_for": [0, 1]},
    ]
    group = {"name": "pair", "members": [4, 2], "failure": "", "pending": calls}
    view = View()
    view.refresh(status(report(0, 1, groups=[group])), now=0)
    row = view.ranks[0]
    assert (row.group, row.call, row.waits) == ("pair", "barrier #7", "9.0 s for rank 4, 2")


def test_ranks_are_sorted_and_filtered():
    view = View()
    view.refresh(status(*(report(rank, 0) for rank in (0, 1, 2))), now=0)
    silent = {"rank": 3, "error": "does not answer"}
    view.refresh(status(report(0, 5), report(1, 50), report(2, 9), silent), now=1)
    assert [rank.rank for rank in view.sorted_ranks("calls/s", "")] == [1, 2, 0, 3]
    assert next(rank.rank for rank in view.sorted_ranks("waits", "")) == 3
    assert [rank.rank for rank in view.sorted_ranks("rank", "desk 42")] == [2]


def test_the_title_names_the_job_and_counts_several():
    view = View()
    view.refresh(status(report(0, 1), report(1, 1)), now=0)
    assert view.title() == "healthy: 2 ranks of job j"
    view.refresh(status(report(0, 1), report(0, 1, job="other")), now=1)
    assert view.title() == "healthy: 2 ranks of 2 jobs"
    assert [rank.job for rank in view.sorted_ranks("rank", "job other")] == ["other"]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (12345, "12.3k"), (2e9, "2G")]
)
def test_amounts_have_decimal_units(number, text):
    assert amount(number) == text


class Terminal:
    """A terminal of 120 columns in which a program runs."""

    def __init__(self, command: str) -> None:
        self._tmux = ("tmux", "-L", f"mccl-{uuid.uuid4()}")
        self._run("new-session", "-d", "-x", "120", "-y", "30", f"{command}; sleep 60")

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def type(self, keys: str) -> None:
        self._run("send-keys", keys)

    def shows(self, *words: str) -> bool:
        return wait_until(lambda: all(word in self.screen() for word in words))

    def close(self) -> None:
        self._run("kill-server")


def rank_of(pid: int) -> int | None:
    """Returns a process that `pid` has started, once it answers `mccl status`."""
    for each in psutil.Process(pid).children():
        done = subprocess.run([program(), "status", str(each.pid)], capture_output=True)
        if done.returncode == 0:
            return each.pid
    return None


@contextmanager
def running_job() -> Iterator[int]:
    """A job of two ranks, which calls all_reduce for minutes; returns a rank's process."""
    words = [program(), "bench", "all_reduce", "--sizes", "1M", "--seconds", "300", "--no-bounds"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as bench:
        try:
            yield wait_until(lambda: rank_of(bench.pid))
        finally:
            bench.terminate()


@pytest.fixture
def job() -> Iterator[int]:
    """See running_job()."""
    with running_job() as pid:
        yield pid


def name_of_job(pid: int) -> str:
    """Returns the name of the job that `mccl status` prints."""
    done = subprocess.run([program(), "status", str(pid)], capture_output=True, text=True)
    return done.stdout.split()[1].rstrip(":")


def test_the_view_shows_a_running_job_until_it_ends(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(f"{program()} top {job} --every 0.2")
    try:
        assert terminal.shows(f"healthy: 2 ranks of job {name_of_job(job)}", "calls/s")
        assert terminal.shows("sorted by rank")
        terminal.type("s")
        assert terminal.shows("sorted by calls/s")
        terminal.type("d")
        wait_until(lambda: list(tmp_path.glob("mccl-*-*.json")))
        terminal.type("l")
        assert terminal.shows("transport", "connected")
        terminal.type("q")
        wait_until(lambda: "healthy" not in terminal.screen())
    finally:
        terminal.close()


def test_the_view_shows_the_job_of_each_rank(job):
    with running_job() as other:
        terminal = Terminal(f"{program()} top --every 0.2")
        try:
            assert terminal.shows(" jobs", "job  ", name_of_job(job), name_of_job(other))
        finally:
            terminal.close()


def test_the_view_needs_a_terminal_and_a_job():
    done = subprocess.run([program(), "top"], capture_output=True, text=True)
    assert done.returncode == 2 and "needs a terminal" in done.stderr
    terminal = Terminal(f"{program()} top 1; echo status $?")
    try:
        assert terminal.shows("status 2")
    finally:
        terminal.close()
