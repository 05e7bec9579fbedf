"""Tools that look at a running job: mccl dump, mccl status and mccl trace."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from launching import BUILD, program, wait_until


def run(*words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs the program and checks its exit status."""
    command = [str(program()), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done
    return done


def record_of(pid: int) -> dict | None:
    """Returns the flight record of a process once it has made a call."""
    done = subprocess.run([program(), "dump", str(pid)], capture_output=True, text=True)
    record = json.loads(done.stdout) if done.returncode == 0 else {"calls": []}
    return record if record["calls"] else None


def has_done(pid: int, call: str, size: int) -> bool:
    return any(
        (each["call"], each["bytes"], each["state"]) == (call, size, "done")
        for each in (record_of(pid) or {"calls": []})["calls"]
    )


def ranks_of(pid: int) -> list[int]:
    """Returns the two processes that `pid` has started, once both have made a call."""
    ranks = [each.pid for each in psutil.Process(pid).children() if record_of(each.pid)]
    return ranks if len(ranks) == 2 else []


@pytest.fixture
def job(tmp_path: Path) -> Iterator[list[int]]:
    """A job of two ranks, which calls all_reduce for minutes; returns their processes."""
    environment = {
        **os.environ,
        "MCCL_FLIGHT_RECORDER_FILE": f"{tmp_path}/%r.json",
        "MCCL_FLIGHT_RECORDER_SIGNAL": "USR1",
    }
    words = [program(), "bench", "all_reduce", "--sizes", "1M", "--seconds", "300", "--no-bounds"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as bench:
        try:
            yield wait_until(lambda: ranks_of(bench.pid))
        finally:
            bench.terminate()


def test_dump_prints_the_calls_of_a_running_process(job, tmp_path):
    records = [record_of(pid) for pid in job]
    assert sorted(record["rank"] for record in records) == [0, 1]
    assert len({record["job"] for record in records}) == 1
    assert wait_until(lambda: has_done(job[0], "all_reduce", 1 << 20))
    file = tmp_path / "record.json"
    run("dump", job[0], "-o", file)
    assert json.loads(file.read_text())["pid"] == job[0]


def test_status_asks_ranks_that_this_host_cannot_reach_through_a_rank_here(job):
    folders = [Path(f"/run/user/{os.getuid()}/mccl"), Path(f"/tmp/mccl-{os.getuid()}")]
    sockets = [path for folder in folders for path in folder.glob(f"{job[1]}-*")]
    for path in sockets:
        path.unlink()
    ranks = json.loads(run("status", job[0], "--json").stdout)["ranks"]
    assert sockets and sorted(rank["pid"] for rank in ranks) == sorted(job)
    os.kill(job[1], signal.SIGSTOP)
    try:
        assert "does not answer" in run("status", job[0], status=1).stdout
    finally:
        os.kill(job[1], signal.SIGCONT)


def test_status_follows_a_job(job):
    words = [program(), "status", "--json", "--follow", "0.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as status:
        answers = (json.loads(line)["ranks"] for line in status.stdout)
        first = next(answers)[0]["calls"]
        # On a busy machine, the ranks may not have made a call yet.
        assert wait_until(lambda: next(answers)[0]["calls"] > first)
        status.terminate()


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
def test_a_word_instead_of_a_process_is_an_error(word):
    run("dump", word, status=2)


def status_of(pid: int, *flags: str) -> tuple[int, dict]:
    """Runs mccl status --json; returns its exit status and what it prints."""
    command = [str(program()), "status", str(pid), "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def test_a_healthy_job(job):
    code, status = status_of(job[0], "--stuck-after", "100")
    assert (code, status["health"], status["findings"]) == (0, "healthy", [])
    assert [rank["pid"] in job for rank in status["ranks"]] == [True, True]
    text = run("status", job[1], "--stuck-after", 100).stdout
    (name,) = {rank["job"] for rank in status["ranks"]}
    assert f"job {name}: 2 ranks on 1 host" in text
    assert text.endswith("healthy\n")


def test_a_job_that_waits_for_a_stopped_rank_is_stuck(job):
    stopped = next(pid for pid in job if record_of(pid)["rank"] == 1)
    os.kill(stopped, signal.SIGSTOP)
    try:
        finding = f"rank 1 (process {stopped}) "

        def is_found() -> bool:
            code, status = status_of(next(p for p in job if p != stopped), "--stuck-after", "0.5")
            texts = " ".join(status["findings"])
            return code == 1 and "rank 0 has waited" in texts and finding in texts

        wait_until(is_found)
    finally:
        os.kill(stopped, signal.SIGCONT)


def test_a_socket_that_a_killed_process_left_is_no_job(job):
    """A process that was killed and not yet waited for still has its socket's file."""
    stale = subprocess.Popen(["sleep", "60"])
    folder = Path(f"/run/user/{os.geteuid()}/mccl")
    folder = folder if folder.is_dir() else Path(f"/tmp/mccl-{os.geteuid()}")
    path = folder / f"{stale.pid}-0-0123abcd"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    try:
        assert run("status", stale.pid, status=2).stderr.endswith("not shown\n")
        assert status_of(job[0], "--stuck-after", "100")[0] == 0
    finally:
        stale.kill()
        stale.wait()
    os.utime(path, (0, 0))  # A new socket stays, because its process may not listen yet.
    run("status", job[0], "--stuck-after", 100)
    assert not path.exists()


def test_no_such_job():
    message = run("status", os.getpid(), status=2).stderr
    assert "no socket" in message


def recorded(job: list[int], tmp_path: Path) -> list[Path]:
    """Writes the records of all ranks to files."""
    files = []
    for pid in job:
        files.append(tmp_path / f"record-{pid}.json")
        run("dump", pid, "-o", files[-1])
    return files


def test_records_are_compared_and_drawn(job, tmp_path):
    files = recorded(job, tmp_path)
    trace = tmp_path / "trace.json"
    run("trace", *files, "-o", trace)
    events = json.loads(trace.read_text())["traceEvents"]
    bars = [event for event in events if event["ph"] == "X"]
    assert {bar["pid"] for bar in bars} == {0, 1}
    assert {bar["name"] for bar in bars} >= {"all_reduce"}
    assert all(bar["dur"] >= 0 and bar["ts"] >= 0 for bar in bars)


@pytest.mark.long
def test_torchs_analyser_reads_the_records(job, tmp_path):
    pytest.importorskip("torch.distributed.flight_recorder.fr_trace")
    folder = tmp_path / "dumps"
    run("trace", *recorded(job, tmp_path), "--torch", folder)
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "all_reduce" in done.stdout + done.stderr


LINES = """
import sys
import numpy
import mccl
import mccl.distributed as dist

world = dist.init()
x = numpy.ones(4)
for _ in range(3):
    world.all_reduce(x)  # first
def called():
    return world.broadcast(x, 0, wait=False)
called().wait()
print(*{call["site"] for call in mccl.flight_record()["calls"] if "site" in call})
try:
    if world.rank == 0:
        world.all_gather(x)  # rank 0
    else:
        world.all_reduce(x)  # rank 1
finally:
    last = mccl.flight_record()["calls"][-1]
    print(last["call"], last["state"], "at", last["site"], flush=True)
"""


def line_of(text: str, program_text: str) -> str:
    before = program_text[: program_text.index(text)]
    return f"lines.py:{before.count(chr(10)) + 1}"


def test_a_call_is_recorded_with_its_line_of_python(tmp_path):
    script = tmp_path / "lines.py"
    script.write_text(LINES)
    command = [program(), "launch", "-n", "2", sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    for text in ("# first", "world.broadcast"):
        assert done.stdout.count(line_of(text, LINES)) == 2, done
    # A rank notices the difference itself, or hears of it first from the other rank.
    lines = [line_of(text, LINES) for text in ("# rank 0", "# rank 1")]
    for name, line in zip(("all_gather", "all_reduce"), lines, strict=True):
        assert f"{name} failed at {line}" in done.stdout, done
    noticed = sum(done.stderr.count(f"instead of the call at {line}") for line in lines)
    assert noticed == 2, done.stderr
    # A rank that hears of it names its own line too.
    for rank, line in enumerate(lines):
        [error] = re.findall(
            rf"(?:all_gather|all_reduce) #\S+ .*on rank {rank} failed.*", done.stderr
        )
        assert line in error, done.stderr


TORCH_LINES = """
import torch
import torch.distributed as dist
import mccl

dist.init_process_group("mccl")
x = torch.ones(4)
dist.all_reduce(x)  # first
dist.barrier()
print(*{call["site"] for call in mccl.flight_record()["calls"] if "site" in call})
dist.destroy_process_group()
"""


def test_a_call_of_torch_is_recorded_with_its_line_of_python(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "lines.py"
    script.write_text(TORCH_LINES)
    command = [program(), "launch", "-n", "2", sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    assert done.stdout.count(line_of("# first", TORCH_LINES)) == 2, done


def test_records_that_are_damaged_or_of_two_jobs(job, tmp_path):
    files = recorded(job, tmp_path)
    assert "both of rank" in run("trace", files[0], files[0], status=2).stderr
    whole = files[0].read_text()
    files[0].write_text(whole[: len(whole) // 2])
    assert str(files[0]) in run("trace", *files, status=2).stderr
    files[0].write_text(whole.replace('"version":1', '"version":2'))
    assert "another version" in run("trace", *files, status=2).stderr
    assert "nowhere" in run("trace", tmp_path / "nowhere.json", status=2).stderr


def nvtx_headers() -> str:
    """Returns the folder of the headers with which MCCL was built; empty if there was none."""
    cache = (BUILD / "CMakeCache.txt").read_text() if (BUILD / "CMakeCache.txt").exists() else ""
    found = re.search(r"^MCCL_NVTX_HEADERS:\w+=(.+)$", cache, re.M)
    return found[1] if found and not found[1].endswith("NOTFOUND") else ""


def test_a_profiler_sees_each_call_with_its_size(tmp_path):
    headers = nvtx_headers()
    if not headers:
        pytest.skip("MCCL was built without the headers of NVTX")
    recorder = tmp_path / "recorder.so"
    source = Path(__file__).with_name("nvtx_recorder.c")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{headers}", "-o", recorder, source], check=True)
    words = ("bench", "broadcast", "--sizes", "4K", "--iterations", "2", "--no-bounds")
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(recorder)}
    done = subprocess.run([program(), *words], env=environment, capture_output=True, text=True)
    seen = done.stderr.splitlines()
    assert done.returncode == 0 and "nvtx domain mccl" in seen, done
    assert "nvtx range broadcast 4096" in seen and "nvtx end" in seen
