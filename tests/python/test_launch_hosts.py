"""`mccl launch` over a real ssh, between network namespaces with a real sshd each."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
import ssh_hosts
from launching import PATIENCE, marked, program, unused_folders, wait_until
from ssh_hosts import begin, launch

pytestmark = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
SH = ("--", "sh", "-c")
ALL = ("--hosts", "a,b,c,d")


@pytest.fixture(scope="module")
def hosts():
    made = ssh_hosts.SshHosts(4)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_remains(hosts):
    """Checks that no job folder remains. All hosts share this machine's temporary folder."""
    before = unused_folders()
    yield
    wait_until(lambda: unused_folders() <= before, unused_folders() - before)


def need(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


def test_ranks_run_where_they_should_and_meet_by_address(hosts):
    script = "ip -o -4 addr show dev cable | sed 's/.*inet //; s/\\/.*//'; echo $MCCL_ROOT"
    done = launch(hosts, *ALL, "-n", 2, *SH, script)
    for rank in range(8):
        host = hosts.address("abcd"[rank // 2])
        assert f"[{rank}] {host}\n" in done.stdout
        assert f"[{rank}] {hosts.address('a')}:32321\n" in done.stdout


def test_by_hostfile_with_this_machine_among_the_hosts(hosts, tmp_path: Path):
    file = tmp_path / "desk.json"
    file.write_text(
        json.dumps(
            [
                {"ssh": "a", "ips": [hosts.address("a")], "slots": 2, "env": {"WHO": "it's a"}},
                {"ssh": "127.0.0.1", "cwd": str(tmp_path)},
                {"ssh": f"root@{hosts.address('b')}:22"},
            ]
        )
    )
    done = launch(hosts, "--hostfile", file, *SH, "echo $WHO $MCCL_LISTEN_ADDR; cat $MLX_HOSTFILE")
    assert done.stdout.count(f"it's a {hosts.address('a')}\n") == 2
    ring = json.loads(re.search(r"\[2\] (\[\[.*)", done.stdout)[1])
    addresses = [place[0].split(":")[0] for place in ring]
    assert addresses == [*[hosts.address("a")] * 2, f"{ssh_hosts.NETWORK}.100", hosts.address("b")]


def test_each_entry_of_a_host_is_its_own(hosts, tmp_path: Path):
    file = tmp_path / "desk.json"
    entries = [
        {"ssh": "a", "ips": [hosts.address("a")], "env": {"WHO": "first"}},
        {"ssh": "a", "ips": ["127.0.0.1"], "env": {"WHO": "second"}},
    ]
    file.write_text(json.dumps(entries))
    done = launch(hosts, "--hostfile", file, *SH, "echo $WHO $MCCL_LISTEN_ADDR $LOCAL_RANK")
    assert sorted(done.stdout.splitlines()) == [
        f"[0] first {hosts.address('a')} 0",
        "[1] second 127.0.0.1 1",
    ]


def test_files_are_private(hosts):
    done = launch(
        hosts, "--hosts", "a", *SH, "stat -c %a ${_MCCL_LAUNCH}hostfile.json $_MCCL_LAUNCH"
    )
    assert done.stdout == "600\n700\n"


def test_words_arrive_unchanged(hosts, tmp_path: Path):
    words = ["a b", "$HOME", "it's", '"x"', "", "a\nb", "\\", "*", "~", "é€😀", "-x", "`id`", "!!"]
    folder = tmp_path / "it's a $folder\nof lines"
    folder.mkdir()
    script = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['A'], os.getcwd()]))"
    for value in (*words, " ".join(words)):
        done = launch(
            hosts, "--hosts", "a", "--cwd", folder, "--env", f"A={value}",
            "python3", "-c", script, *words,
        )  # fmt: skip
        assert json.loads(done.stdout) == [words, value, str(folder)]


def test_more_ranks_than_one_connection_has_sessions(hosts):
    done = launch(hosts, "--hosts", "a,b", "-n", 20, *SH, "echo $LOCAL_RANK")
    assert len(done.stdout.splitlines()) == 40


def test_standard_input_and_error(hosts):
    done = launch(hosts, *ALL, "--no-prefix", *SH, "wc -c; echo e >&2", text_in="x" * 1_000_000)
    assert done.stdout.split() == ["1000000"] * 4
    assert done.stderr == "e\n" * 4


def test_no_secret_is_on_a_command_line(hosts, mark: str):
    script = "echo $MCCL_JOB_KEY; exec sleep 1000"
    job = begin(hosts, "--hosts", "a", "--env", "PASSWORD=hunter2", *SH, script, mark)
    key = job.stdout.readline().strip()
    assert len(key) == 64
    lines = _command_lines()
    assert len(lines) > 1
    assert not any(key in line for line in lines)
    job.terminate()
    job.communicate(timeout=PATIENCE)


def _command_lines() -> list[str]:
    """Returns the command lines of all processes that still exist."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return found


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        pytest.param("exit 7", 7, "exited with status 7", marks=pytest.mark.long),
        ("exit 255", 255, "exited with status 255"),
        ("kill -9 $$", 137, "was killed by signal 9"),
        pytest.param("kill -TERM $$", 143, "was killed by signal 15", marks=pytest.mark.long),
    ],
)
def test_the_first_failure_ends_the_job_on_every_host(hosts, mark, how, status, said):
    script = f"[ $RANK = 2 ] && {{ echo last words >&2; {how}; }}; sleep 1000 & sleep 1000"
    done = launch(hosts, *ALL, *SH, script, mark, status=status)
    assert f"rank 2 of 4 on c {said}" in done.stderr
    assert done.stderr.count("last words") == 1
    wait_until(lambda: not marked(mark), marked(mark))


def test_ranks_that_ignore_sigterm_and_strays_are_killed(hosts, mark: str):
    script = (
        f"setsid sh -c 'trap \"\" TERM; while :; do sleep 1000; done' {mark} > /dev/null 2>&1 & "
        "trap '' TERM; [ $RANK = 1 ] && exit 3; while :; do sleep 1000; done"
    )
    launch(hosts, "--hosts", "a,b", "--grace", 1, *SH, script, mark, status=3)
    wait_until(lambda: not marked(mark), marked(mark))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_no_process_outlives_the_launcher(hosts, mark: str, number: signal.Signals):
    job = begin(hosts, *ALL, *SH, "echo ready; sleep 1000 & wait", mark)
    for _ in range(4):
        assert "ready" in job.stdout.readline()
    job.send_signal(number)
    sent = time.monotonic()
    job.communicate(timeout=PATIENCE)
    wait_until(lambda: not marked(mark), marked(mark))
    assert time.monotonic() - sent < 10
    assert job.returncode == (-number if number == signal.SIGKILL else 128 + number)


@contextlib.contextmanager
def cable_pulled(hosts, name: str):
    hosts.pull(name)
    try:
        yield
    finally:
        hosts.plug_in(name)


@pytest.mark.long
def test_a_cut_shorter_than_the_liveness_interval_is_borne(hosts, tmp_path: Path):
    """TCP retransmits at growing intervals, so data may flow only after twice the cut's length."""
    back = tmp_path / "back"
    script = f"echo ready; until [ -e {back} ]; do sleep 0.1; done; echo still here"
    job = begin(hosts, *ALL, *SH, script)
    for _ in range(4):
        assert "ready" in job.stdout.readline()
    with cable_pulled(hosts, "b"):
        time.sleep(6)
    back.touch()
    stdout, stderr = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, stderr
    assert stdout.count("still here") == 4


def test_a_host_that_drops_off_ends_the_job_and_its_ranks(hosts, mark: str):
    """A liveness interval of 1 s lets the connection be silent for 6 s."""
    job = begin(
        hosts, *ALL, "--grace", 2, "--env", "MCCL_LIVENESS_INTERVAL=1",
        *SH, "echo ready; sleep 1000 & wait", mark,
    )  # fmt: skip
    for _ in range(4):
        assert "ready" in job.stdout.readline()
    with cable_pulled(hosts, "b"):
        pulled = time.monotonic()
        _, stderr = job.communicate(timeout=PATIENCE)
        wait_until(lambda: not marked(mark), marked(mark))
        assert time.monotonic() - pulled < 30
    assert job.returncode == 255
    assert "rank 1 of 4 on b was lost with the connection to its host" in stderr
    assert_it_names_the_network(stderr, "b", "--silence")


def assert_it_names_the_network(stderr: str, host: str, limit: str) -> None:
    since = r"since \d\d:\d\d:\d\d, for [\d.]+ s"
    assert re.search(f"{host}: nothing was received from this host {since}", stderr)
    assert "the host or the network to it failed" in stderr
    assert f"try: ssh {host}; a larger {limit}" in stderr
    assert "signal 15" not in stderr


def test_a_job_of_mccl_without_its_network_names_it(hosts):
    """The ranks notice the cut and fail before the launcher knows that the network failed."""
    words = ("--no-bounds", "--sizes", "8", "--seconds", PATIENCE, "--transport", "tcp")
    job = begin(
        hosts, *ALL, "--grace", 1, "--env", "MCCL_LIVENESS_INTERVAL=4", "--env",
        "MCCL_LOG_LEVEL=INFO", program(), "bench", "all_reduce", *words,
    )  # fmt: skip
    line = ""
    while "] measured: " not in line:  # logged once all ranks have met
        line = job.stderr.readline()
        assert line, "the job ended"
    with cable_pulled(hosts, "b"):
        _, stderr = job.communicate(timeout=PATIENCE)
    assert job.returncode == 255
    assert "rank 1 of 4 on b was lost with the connection to its host" in stderr
    assert_it_names_the_network(stderr, "b", "MCCL_LIVENESS_INTERVAL")


@pytest.mark.parametrize(
    "heeding", ["exit 0", pytest.param("trap - TERM; kill -TERM $$", marks=pytest.mark.long)]
)
def test_a_launcher_that_was_stopped_reports_so_and_names_no_signal(hosts, heeding: str):
    """The other hosts end the ranks. The job fails even if a rank then exits with status 0."""
    job = begin(
        hosts, "--hosts", "a,b", "--grace", 1, "--silence", 4, "--env", "MCCL_LIVENESS_INTERVAL=1",
        *SH, f"trap '{heeding}' TERM; echo $$; sleep 1000 & wait",
    )  # fmt: skip
    ranks = [int(job.stdout.readline().split()[-1]) for _ in range(2)]
    job.send_signal(signal.SIGSTOP)
    wait_until(lambda: not any(psutil.pid_exists(rank) for rank in ranks))
    job.send_signal(signal.SIGCONT)
    _, stderr = job.communicate(timeout=PATIENCE)
    assert job.returncode == 255, stderr
    assert re.search(r"received nothing from the launcher for 4 s: .* did not run for", stderr)
    assert "signal 15" not in stderr


def test_all_unusable_hosts_are_reported_with_a_cure(hosts, tmp_path: Path):
    touched = tmp_path / "touched"
    hosts.forget("b")
    hosts.servers["c"].send_signal(signal.SIGTERM)
    hosts.servers["c"].wait(timeout=PATIENCE)
    try:
        done = launch(hosts, *ALL, *SH, f"touch {touched}", status=1)
    finally:
        hosts.serve("c")
        hosts.use_key("client")
    assert re.search(r"  b: .*accept the key once with: ssh b", done.stderr)
    assert re.search(r"  c: no ssh server", done.stderr)
    assert "  a: " not in done.stderr
    assert not touched.exists()


def test_a_key_that_is_refused(hosts):
    hosts.use_key("stranger")
    try:
        done = launch(hosts, "--hosts", "a,b", "true", status=1)
    finally:
        hosts.use_key("client")
    assert done.stderr.count("ssh-copy-id") == 2


def test_what_is_missing_there(hosts, tmp_path: Path):
    assert 'no program "nope"' in launch(hosts, "--hosts", "a", "nope", status=1).stderr
    missing = launch(hosts, "--hosts", "a", "--cwd", tmp_path / "x", "true", status=1)
    assert "no directory" in missing.stderr
    assert "no script" in launch(hosts, "--hosts", "a", "nope.py", status=1).stderr


def test_a_failed_rank_starts_again_on_its_host(hosts):
    script = (
        'echo "start $TORCHELASTIC_RESTART_COUNT on $(hostname)"; '
        "test $RANK = 1 && test $TORCHELASTIC_RESTART_COUNT = 0 && exit 3; exit 0"
    )
    words = ("--hosts", "a,b", "--max-restarts", 1, "--restart", "failed")
    done = launch(hosts, *words, "sh", "-c", script)
    assert done.stdout.count("start 0") == 2
    assert done.stdout.count("[1] start 1") == 1
    assert "exited with status 3; it starts again, restart 1 of 1" in done.stderr


def test_a_cpp_job_on_mccl(hosts):
    words = ("--no-bounds", "--sizes", "8,1M", "--seconds", "0.01", "--transport", "tcp")
    done = launch(hosts, *ALL, program(), "bench", "all_reduce", *words)
    assert "a job of 4 ranks" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("backend", ["gloo", "mccl"])
def test_a_torch_job_with_ddp(hosts, tmp_path: Path, backend: str):
    need("torch", "mccl._core")
    script = tmp_path / "ddp.py"
    script.write_text(f"""
import torch, torch.distributed as dist
import mccl
dist.init_process_group("{backend}")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.ones(2, 4)).sum().backward()
norm = sum(p.grad.norm().item() for p in model.parameters())
print("ranks", dist.get_world_size(), round(norm, 3))
dist.destroy_process_group()
""")
    done = launch(
        hosts, *ALL, "--env", "OMP_NUM_THREADS=1", "--env", "GLOO_SOCKET_IFNAME=cable",
        "--python", sys.executable, script,
    )  # fmt: skip
    said = {line.split("] ")[1] for line in done.stdout.splitlines() if "ranks" in line}
    assert len(said) == 1
    assert said.pop().startswith("ranks 4 ")


def test_hosts_where_mlx_is_not_on_mccl_are_named(hosts, tmp_path: Path):
    need("mlx")
    script = tmp_path / "import.sh"
    importing = f"{sys.executable} -c 'import mlx.core'"
    script.write_text(f"#!/bin/sh\ntest $MCCL_RANK -lt 2 || {importing}\n")
    script.chmod(0o755)
    assert (
        "--mlx took effect in no program on a, b: " in launch(hosts, *ALL, "--mlx", script).stderr
    )
    script.write_text(f"#!/bin/sh\n{importing}\n")
    assert launch(hosts, *ALL, "--mlx", script).stderr == ""


def test_an_mlx_job_on_its_own_ring(hosts, tmp_path: Path):
    need("mlx")
    script = tmp_path / "ring.py"
    script.write_text("""
import mlx.core as mx
group = mx.distributed.init(strict=True, backend="ring")
total = mx.distributed.all_sum(mx.ones(3) * (group.rank() + 1), group=group)
print("sum", total.tolist())
""")
    done = launch(hosts, *ALL, "--python", sys.executable, script)
    assert done.stdout.count("sum [10.0, 10.0, 10.0]") == 4


@pytest.mark.long
def test_a_gigabyte_a_rank_would_pass(hosts):
    total = int(os.environ.get("LAUNCH_TEST_BYTES", 8 << 20))
    job = begin(hosts, *ALL, "--no-prefix", *SH, f"yes 0123456789 | head -c {total}", text=False)
    read = 0
    while piece := job.stdout.read(1 << 20):
        read += len(piece)
    assert job.wait(timeout=300) == 0
    assert 4 * total <= read <= 4 * total + 4
    job.stderr.close()
