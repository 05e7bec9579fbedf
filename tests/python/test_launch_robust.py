"""`mccl launch` on hosts that are noisy, crowded, slow or full, over a real ssh."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import ssh_hosts
from launching import PATIENCE, environment, marked, program, unused_folders, wait_until
from ssh_hosts import begin, launch

pytestmark = pytest.mark.skipif(bool(why := ssh_hosts.missing()), reason=why or "-")
SH = ("--", "sh", "-c")


@pytest.fixture(scope="module")
def hosts():
    made = ssh_hosts.SshHosts(4)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_remains(hosts):
    """Checks that no job folder remains, and restores the hosts' settings.

    All hosts share this machine's temporary folder.
    """
    before = unused_folders()
    yield
    wait_until(lambda: unused_folders() <= before, unused_folders() - before)
    for name in {*hosts.sshd_options, *hosts.before_sshd}:
        hosts.sshd_options.pop(name, None)
        hosts.before_sshd.pop(name, None)
        hosts.serve_again(name)
    hosts.use_key("client")


@pytest.fixture
def bashrc(hosts):
    """Writes the ~/.bashrc of all hosts, which bash reads when ssh runs a command."""
    file = hosts.folder / "home/.bashrc"
    yield file.write_text
    file.unlink(missing_ok=True)


def with_sshd(hosts, name: str, *options: str) -> None:
    hosts.sshd_options[name] = options
    hosts.serve_again(name)


@pytest.mark.parametrize(
    "noise",
    [
        "printf 'welcome, '",
        *(
            pytest.param(noise, marks=pytest.mark.long)
            for noise in ("echo welcome", "printf 'a\\nb'")
        ),
    ],
)
def test_a_start_up_file_may_print_and_ranks_do_not(hosts, bashrc, noise: str):
    bashrc(f"{noise}\n")
    done = launch(hosts, "--hosts", "a,b", "-n", 10, *SH, "echo rank $RANK; printf end")
    lines = [f"[{r:>2}] {text}" for r in range(20) for text in (f"rank {r}", "end")]
    assert sorted(done.stdout.splitlines()) == sorted(lines)


def test_output_is_the_ranks_to_the_byte(hosts, bashrc):
    bashrc("printf noise\n")
    done = launch(hosts, "--hosts", "a", *SH, "printf 'a\\n\\nb'; printf 'c\\nd' >&2")
    assert done.stdout == "a\n\nb"
    assert done.stderr == "c\nd"


def test_a_stray_process_does_not_delay_the_end_of_the_job(hosts, mark: str):
    script = f"[ $RANK = 1 ] && {{ setsid sh -c 'sleep 25; : {mark}' & exit 7; }}; sleep 1000"
    began = time.monotonic()
    done = launch(hosts, "--hosts", "a,b", *SH, script, status=7)
    assert time.monotonic() - began < 8
    assert "rank 1 of 2 on b exited with status 7" in done.stderr
    wait_until(lambda: not marked(mark), marked(mark))


def test_later_output_of_a_stray_process_is_dropped(hosts):
    """Rank 0 keeps the job running for longer than the stray process of rank 1 waits."""
    script = (
        "[ $RANK = 0 ] && exec sleep 4; echo mine; setsid sh -c 'sleep 2.5; echo late' & exit 0"
    )
    done = launch(hosts, "--hosts", "a,b", *SH, script)
    assert done.stdout == "[1] mine\n"


def test_all_output_before_the_end_of_a_rank_is_printed(hosts):
    """On a slow link, output in flight at the rank's end takes several seconds to arrive."""
    hosts._must(
        "ip", "netns", "exec", hosts.space("a"), "tc", "qdisc", "add", "dev", "cable", "root",
        "tbf", "rate", "8mbit", "burst", "32k", "latency", "50ms",
    )  # fmt: skip
    try:
        script = "head -c 3000000 /dev/zero; setsid sleep 25 & exit 0"
        done = launch(hosts, "--hosts", "a", "--no-prefix", *SH, script)
    finally:
        hosts._must("ip", "netns", "exec", hosts.space("a"), "tc", "qdisc", "del", "dev", "cable",
                    "root")  # fmt: skip
    assert len(done.stdout) == 3_000_000


@pytest.mark.long
def test_many_ranks_on_one_host_at_sshds_own_limits(hosts):
    with_sshd(hosts, "a", "-o", "MaxStartups=10:30:100", "-o", "MaxSessions=10")
    for _ in range(2):
        done = launch(hosts, "--hosts", "a", "-n", 128, *SH, "echo $RANK")
        assert len(done.stdout.splitlines()) == 128


def through_jump_host(hosts, count: int) -> tuple[str, ...]:
    """Returns names of `count` hosts behind the jump host `d`.

    Each is one of the hosts a, b and c.
    """
    text = hosts.config.read_text()
    names = [f"far{i}" for i in range(count)]
    jumping = ""
    for i, name in enumerate(names):
        real = "abc"[i % 3]
        jumping += f"Host {name}\n  HostName {hosts.address(real)}\n  ProxyCommand ssh -F "
        jumping += f"{hosts.config} -W %h:%p d\n"
    hosts.config.write_text(jumping + text)
    return tuple(names)


@pytest.mark.long
def test_many_hosts_behind_a_jump_host_at_sshds_own_limits(hosts):
    with_sshd(hosts, "d", "-o", "MaxStartups=10:30:100")
    names = through_jump_host(hosts, 24)
    done = launch(hosts, "--hosts", ",".join(names), *SH, "echo $RANK")
    assert len(done.stdout.splitlines()) == 24


def test_logins_that_are_dropped_are_tried_again(hosts):
    """While one login is pending, sshd drops half of the further ones."""
    with_sshd(hosts, "a", "-o", "MaxStartups=1:50:100")
    done = launch(hosts, "--hosts", "a", "-n", 24, *SH, "echo $RANK")
    assert len(done.stdout.splitlines()) == 24


def test_hosts_are_queried_again_after_dropped_logins(hosts):
    with_sshd(hosts, "d", "-o", "MaxStartups=1:50:100")
    names = through_jump_host(hosts, 3)
    done = subprocess.run(
        hosts.on(
            "desk", program(), "doctor", "--no-measure", "--json", "--ssh-arg=-F",
            "--ssh-arg", hosts.config, "--hosts", ",".join(names),
        ),
        capture_output=True, text=True, timeout=PATIENCE, env=environment(),
    )  # fmt: skip
    assert len(json.loads(done.stdout)["hosts"]) == 3, done.stderr


@pytest.mark.long
def test_a_server_that_drops_all_logins_is_reported(hosts):
    with_sshd(hosts, "b", "-o", "MaxStartups=1:100:1")
    held = [hold_a_login(hosts, "b") for _ in range(2)]
    try:
        done = launch(hosts, "--hosts", "a,b", "true", status=1)
    finally:
        for process in held:
            process.kill()
            process.communicate()
    assert "MaxStartups" in done.stderr
    assert "  a: " not in done.stderr


def hold_a_login(hosts, name: str):
    """Opens a connection to the host's sshd that never logs in."""
    command = f"exec 3<>/dev/tcp/{hosts.address(name)}/22; read -r l <&3; echo up; sleep 1000"
    held = subprocess.Popen(
        hosts.on("desk", "bash", "-c", command), stdout=subprocess.PIPE, text=True
    )
    held.stdout.readline()
    return held


def test_one_host_that_hangs_is_the_one_that_is_reported(hosts):
    hosts.servers["c"].send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        done = launch(hosts, "--hosts", "a,b,c,d", "--patience", 3, "true", status=1)
        assert time.monotonic() - began < 10
    finally:
        hosts.servers["c"].send_signal(signal.SIGCONT)
    assert re.findall(r"^  (\w+): ", done.stderr, re.MULTILINE) == ["c"]


def test_a_hanging_start_up_file_is_reported_with_the_patience(hosts, bashrc):
    bashrc("sleep 1000\n")
    done = launch(hosts, "--hosts", "a", "--patience", 2, "true", status=1)
    assert "a: the host did not answer in 2 s; try: ssh a true; --patience" in done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_ranks_over_there_share_the_cores(hosts):
    script = "grep Cpus_allowed_list /proc/self/status"
    done = launch(hosts, "--hosts", "a", "-n", 2, "--no-prefix", "--verbose", *SH, script)
    parts = [line.split(":", 1)[1].strip() for line in done.stdout.splitlines()]
    assert len(set(parts)) == 2
    for part in parts:
        assert f"bound to cores {part}:" in done.stderr
    env = ("--env", "OMP_PROC_BIND=true")
    free = launch(hosts, "--hosts", "a", "-n", 2, *env, "--no-prefix", "--verbose", *SH, script)
    assert len(set(free.stdout.splitlines())) == 1
    assert "not bound to cores (OMP_PROC_BIND is set)" in free.stderr


@pytest.mark.parametrize(
    "number", [signal.SIGUSR1, pytest.param(signal.SIGUSR2, marks=pytest.mark.long), signal.SIGQUIT]
)
def test_signals_for_the_ranks_reach_them(hosts, number: signal.Signals):
    name = number.name.removeprefix("SIG")
    script = (
        f"trap 'echo got {name}; exit 0' {name}; sleep 1000 & echo ready; while :; do wait $!; done"
    )
    job = begin(hosts, "--hosts", "127.0.0.1,a,b", *SH, script)
    for _ in range(3):
        assert "ready" in job.stdout.readline()
    job.send_signal(number)
    stdout, stderr = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, stderr
    assert sorted(stdout.splitlines()) == [f"[{rank}] got {name}" for rank in range(3)]


@pytest.mark.long
def test_ctrl_c_while_hosts_are_reached_leaves_nothing(hosts):
    """After this test, the fixture nothing_remains looks for leftover folders."""
    for i in range(24):
        job = begin(hosts, "--hosts", "a,b,c,d", *SH, "sleep 1000")
        time.sleep(0.02 + 0.03 * i)
        job.send_signal(signal.SIGINT)
        _, stderr = job.communicate(timeout=PATIENCE)
        assert job.returncode in (130, -signal.SIGINT), stderr


@pytest.fixture
def small_disk(tmp_path: Path):
    """Yields a function that makes a small file system, whose size is in its mount options."""
    made = []

    def make(options: str) -> Path:
        folder = tmp_path / f"disk{len(made)}"
        folder.mkdir()
        done = ssh_hosts.shell("mount", "-t", "tmpfs", "-o", options, "tmpfs", folder)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted: {done.stderr.strip()}")
        made.append(folder)
        return folder

    yield make
    for folder in made:
        ssh_hosts.shell("umount", "-l", folder)


@pytest.mark.long
@pytest.mark.parametrize("options", ["size=4k,nr_inodes=2", "size=4k", "size=12k"])
def test_a_full_disk_there_is_the_cause(hosts, small_disk, options: str):
    folder = small_disk(options)
    if "inodes" in options:
        (folder / "taken").touch()
    with_sshd(hosts, "b", "-o", f"SetEnv=TMPDIR={folder}")
    done = launch(hosts, "--hosts", "a,b", "-n", 8, "true", status=1)
    assert re.search(r"  b: .*[Nn]o space", done.stderr), done.stderr
    assert str(folder) in done.stderr
    assert "  a: " not in done.stderr


def test_a_quiet_ssh_still_says_the_cause(hosts):
    hosts.use_key("stranger")
    hosts.config.write_text("LogLevel QUIET\n" + hosts.config.read_text())
    done = launch(hosts, "--hosts", "a", "true", status=1)
    assert "a: the host accepts none of your keys" in done.stderr


def test_a_connection_that_ends_before_the_job_begins_is_named(hosts):
    """The connection to a ready host ends while the launcher still waits for another host."""
    hosts.servers["b"].send_signal(signal.SIGSTOP)
    job = begin(hosts, "--hosts", "a,b", "--patience", 20, "true")
    time.sleep(2)
    sessions = ssh_hosts.shell("pgrep", "-P", str(hosts.servers["a"].pid)).stdout.split()
    assert sessions
    threading.Timer(1, lambda: hosts.servers["b"].send_signal(signal.SIGCONT)).start()
    for session in sessions:
        ssh_hosts.shell("kill", "-9", session)
    _, stderr = job.communicate(timeout=PATIENCE)
    assert job.returncode == 1
    assert re.search(r"^  a: ", stderr, re.MULTILINE), stderr
