"""`mccl launch` on this machine: what ranks receive and print, and how a job ends."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from launching import PATIENCE, environment, marked, program, run, start, unused_folders, wait_until

SH = ("--", "sh", "-c")
FACES = (
    "MCCL_RANK", "MCCL_WORLD_SIZE", "MCCL_ROOT", "MCCL_JOB_KEY", "MLX_RANK", "MLX_HOSTFILE",
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_remains():
    """Checks that no job folder remains. Tests look for leftover processes by their mark."""
    before = unused_folders()
    yield
    wait_until(lambda: unused_folders() <= before, unused_folders() - before)


@pytest.fixture
def endless(mark: str):
    """Starts a job whose ranks have one child each and never end. Returns when all have begun."""
    jobs = []

    def begin(ranks: int = 3) -> subprocess.Popen:
        script = "echo ready; sleep 1000 & wait; wait"
        job = start("-n", ranks, "--grace", 1, *SH, script, mark)
        jobs.append(job)
        for _ in range(ranks):
            assert "ready" in job.stdout.readline()
        return job

    yield begin
    for job in jobs:
        job.kill()
        job.communicate(timeout=PATIENCE)


def descendants(job: subprocess.Popen) -> list[psutil.Process]:
    return psutil.Process(job.pid).children(recursive=True)


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def test_help_teaches():
    text = run("--help").stdout
    for flag in (
        "--hosts", "--hostfile", "--repeat-hosts", "--ranks-per-host", "--backend", "--env",
        "--mpi-arg", "--connections-per-ip", "--starting-port", "--cwd", "--nccl-port", "--python",
        "--print-python", "--verbose", "--timeout", "--prefix", "--no-prefix", "--log-dir",
        "--dry-run", "--print-env", "--user", "--ssh-arg", "--stdin-to", "--slurm", "--check",
        "--mlx", "--patience", "--bind-to", "--timestamps",
    ):  # fmt: skip
        assert flag in text
    assert "mccl launch -n 4 train.py" in text
    assert max(map(len, text.splitlines())) <= 100


def test_every_rank_knows_its_place():
    names = " ".join(f'\\"{name}\\": \\"${name}\\",' for name in FACES).rstrip(",")
    done = run("-n", 3, "--no-prefix", *SH, f'echo "{{{names}}}"; cat $MLX_HOSTFILE; echo')
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("{"))
    ranks = [json.loads(line) for line in lines]
    assert [rank["MCCL_RANK"] for rank in ranks] == ["0", "1", "2"]
    for rank in ranks:
        assert rank["RANK"] == rank["MLX_RANK"] == rank["LOCAL_RANK"] == rank["MCCL_RANK"]
        assert rank["WORLD_SIZE"] == rank["LOCAL_WORLD_SIZE"] == "3"
        assert len(rank["MCCL_JOB_KEY"]) == 64
    for same in ("MCCL_JOB_KEY", "MCCL_ROOT", "MASTER_ADDR", "MASTER_PORT"):
        assert len({rank[same] for rank in ranks}) == 1
    rings = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("[")]
    places = [place for rank in rings[0] for place in rank]
    assert len(rings[0]) == 3
    taken = [ranks[0]["MCCL_ROOT"], f"127.0.0.1:{ranks[0]['MASTER_PORT']}", *places]
    assert len(set(taken)) == len(taken)


def test_two_jobs_have_two_keys():
    keys = [run("-n", 1, *SH, "echo $MCCL_JOB_KEY").stdout for _ in range(2)]
    assert keys[0] != keys[1]


def test_the_key_of_the_shell_stays_the_jobs():
    shared = environment(MCCL_JOB_KEY="a key that others know too")
    done = run("-n", 1, *SH, "echo $MCCL_JOB_KEY", env=shared)
    assert done.stdout == "a key that others know too\n"
    refused = run("true", status=2, env=environment(MCCL_JOB_KEY=""))
    assert "MCCL_JOB_KEY is set and empty" in refused.stderr


@pytest.mark.parametrize("name", ["MCCL_RANK", "MCCL_ROOT", "WORLD_SIZE"])
def test_env_cannot_replace_the_variables_of_each_rank(name: str):
    assert f"sets {name} for the ranks itself" in run("--env", f"{name}=1", "true", status=2).stderr


def test_the_key_is_on_no_command_line(endless):
    job = endless()
    key = re.search(r"MCCL_JOB_KEY=(\w{64})", environ_of(descendants(job)[-1]))[1]
    everything = ["\0".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
    assert not any(key in line for line in everything)
    job.terminate()
    job.communicate(timeout=PATIENCE)


def environ_of(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/environ").read_text()


def test_the_words_of_the_program_are_its_own(tmp_path: Path):
    script = tmp_path / "words.py"
    script.write_text("import sys, json; print(json.dumps(sys.argv[1:]))")
    words = ["-n", "5", "--help", "a b", "$HOME", "it's", 'say "x"', "", "line\nend", "bench", "--"]
    assert json.loads(run("-n", 1, script, *words).stdout) == words


def test_a_script_runs_under_python(tmp_path: Path):
    script = tmp_path / "which.py"
    script.write_text("import sys; print(sys.executable)")
    assert run("--python", sys.executable, script).stdout.strip() == sys.executable
    assert Path(run("--print-python").stdout.strip()).name.startswith("python")


def test_python_by_its_name_is_the_one_that_scripts_get(tmp_path: Path):
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho the first in PATH\n")
    python.chmod(0o755)
    others = environment(PATH=f"{python.parent}:/usr/bin:/bin")
    expected = run("--print-python", env=others).stdout.strip()
    for words in (("python",), ("python3",), ("--", "python3")):
        done = run("-n", 1, *words, "-c", "import sys; print(sys.executable)", env=others)
        assert done.stdout.strip() in (expected, str(Path(expected).resolve())), words


def test_output_is_printed_in_whole_lines_with_a_prefix():
    script = "for i in 1 2 3; do printf 'half '; echo $RANK; done; printf end"
    lines = run("-n", 4, *SH, script).stdout.splitlines()
    for rank in range(4):
        assert [x for x in lines if x.startswith(f"[{rank}] ")] == [
            *[f"[{rank}] half {rank}"] * 3,
            f"[{rank}] end",
        ]


def test_standard_error_stays_apart():
    done = run("-n", 2, "--no-prefix", *SH, "echo out; echo err >&2")
    assert done.stdout == "out\nout\n"
    assert done.stderr == "err\nerr\n"


def test_one_rank_is_as_without_the_launcher():
    assert run(*SH, "printf 'a\\nb'").stdout == "a\nb"
    assert run("--prefix", *SH, "echo a").stdout == "[0] a\n"


def test_every_rank_has_a_log_in_a_folder_of_its_job(tmp_path: Path):
    logs = tmp_path / "logs"
    for job in ("first", "second"):
        run("-n", 2, "--log-dir", logs, *SH, f"echo {job} $RANK; echo err $RANK >&2")
        for rank in range(2):
            lines = (logs / "latest" / f"rank-{rank}.log").read_text().splitlines()
            assert sorted(lines) == sorted([f"err {rank}", f"{job} {rank}"])
    assert len([path for path in logs.iterdir() if not path.is_symlink()]) == 2


def test_lines_may_have_timestamps(tmp_path: Path):
    script = "echo one; printf tw; sleep 0.3; echo o; printf end"
    done = run("-n", 2, "--timestamps", "--log-dir", tmp_path, *SH, script)
    stamp = r"\d\d:\d\d:\d\d\.\d{3} "
    assert len(re.findall(rf"^{stamp}\[[01]\] (?:one|two|end)$", done.stdout, re.MULTILINE)) == 6
    log = (tmp_path / "latest/rank-0.log").read_text()
    assert re.fullmatch(rf"{stamp}one\n{stamp}two\n{stamp}end", log), log
    assert re.fullmatch(rf"{stamp}a\n", run("--timestamps", *SH, "echo a").stdout)


def test_standard_input_goes_to_all_with_its_end():
    text = "".join(f"line {i}\n" for i in range(20000))
    done = run("-n", 3, *SH, "cksum", text_in=text)
    sums = {line.split(" ", 1)[1] for line in done.stdout.splitlines()}
    assert len(sums) == 1
    assert f" {len(text)}" in sums.pop()


def test_one_rank_gets_standard_input():
    done = run("-n", 3, "--stdin-to", 1, *SH, "wc -c", text_in="12345")
    assert sorted(done.stdout.split()) == sorted(["[0]", "0", "[1]", "5", "[2]", "0"])
    assert "the ranks are 0 to 2" in run("-n", 3, "--stdin-to", 3, "true", status=2).stderr


def test_a_rank_that_closes_its_input_stops_no_other_rank():
    done = run("-n", 2, *SH, '[ "$RANK" = 0 ] && exec wc -c; exec <&-', text_in="x" * 5_000_000)
    assert "5000000" in done.stdout


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("exit 7", 7, "exited with status 7"),
        ("kill -9 $$", 137, "was killed by signal 9"),
        ("kill -11 $$", 139, "was killed by signal 11"),
        ("exit 255", 255, "exited with status 255"),
    ],
)
def test_the_first_failure_ends_the_job(how: str, status: int, said: str, mark: str):
    script = f"[ $RANK = 1 ] && {{ echo 'my last words' >&2; {how}; }}; sleep 1000"
    done = run("-n", 3, *SH, script, mark, status=status)
    assert f"rank 1 of 3 on 127.0.0.1 {said}" in done.stderr
    assert done.stderr.count("my last words") == 1
    assert not marked(mark)


def test_a_rank_that_ignores_sigterm_is_killed(mark: str):
    script = "trap '' TERM; [ $RANK = 1 ] && exit 3; while :; do sleep 1000; done"
    run("-n", 2, "--grace", 0.3, *SH, script, mark, status=3)
    assert not marked(mark)


def test_children_that_left_their_group_end_too(mark: str):
    script = f"setsid sh -c 'trap \"\" TERM; while :; do sleep 1000; done' {mark} & exit 0"
    run("-n", 2, *SH, script)
    assert not marked(mark)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_whole_job(number: signal.Signals, endless):
    job = endless()
    all_of_it = descendants(job)
    job.send_signal(number)
    _, stderr = job.communicate(timeout=PATIENCE)
    assert job.returncode == 128 + number
    assert f"signal {number.value}" in stderr
    assert not running(all_of_it)


def test_a_killed_launcher_leaves_no_process_behind(endless, mark: str):
    job = endless()
    all_of_it = descendants(job)
    job.kill()
    killed = time.monotonic()
    job.communicate(timeout=PATIENCE)
    wait_until(lambda: not running(all_of_it), all_of_it)
    assert time.monotonic() - killed < 10
    assert not marked(mark)


def test_a_timeout_ends_the_job():
    done = run("-n", 2, "--timeout", 0.5, "sleep", 1000, status=124)
    assert "--timeout" in done.stderr


def test_a_closed_output_pipe_ends_the_job():
    job = start("-n", 2, "yes")
    job.stdout.read(1000)
    job.stdout.close()
    assert job.wait(timeout=PATIENCE) == 141
    assert "standard output: Broken pipe" in job.stderr.read()
    job.stderr.close()


@pytest.mark.parametrize("script", ["echo a line", "yes"])
def test_a_full_disk_is_a_message_and_a_failure(script: str, mark: str):
    with open("/dev/full", "w") as full:
        job = start("-n", 2, *SH, script, mark, stdout=full)
        _, stderr = job.communicate(timeout=PATIENCE)
    assert job.returncode == 1
    assert "mccl launch: cannot write standard output: No space left on device" in stderr
    assert not marked(mark)


def test_a_log_file_that_cannot_be_written_is_named(tmp_path: Path):
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", tmp_path])
    if made.returncode != 0:
        pytest.skip("no file system can be mounted")
    try:
        script = "[ $RANK = 1 ] && head -c 100000 /dev/zero; exit 0"
        done = run("-n", 2, "--log-dir", tmp_path, *SH, script, status=1)
    finally:
        subprocess.run(["umount", "-l", tmp_path])
    said = rf"cannot write {tmp_path}/[\d-]+/rank-1\.log: No space left on device"
    assert re.search(said, done.stderr)


def test_a_full_pipe_holds_up_the_ranks_and_loses_nothing():
    total = 64 << 20
    job = start("-n", 2, *SH, f"yes 0123456789 | head -c {total}", text=False)
    read = 0
    while piece := job.stdout.read(1 << 20):
        read += len(piece)
    assert job.wait(timeout=PATIENCE) == 0
    # Every line of either rank has a prefix. The last line, cut off by head, may get a line end.
    lines = 2 * (total // 11 + 1)
    assert 2 * total + 4 * lines <= read <= 2 * total + 4 * lines + 2
    job.stderr.close()


def test_characters_are_not_torn():
    script = (
        "import sys\nfor _ in range(3000): sys.stdout.buffer.write('é€😀'.encode() * 7 + b'\\n')"
    )
    done = run("-n", 3, "--no-prefix", "python3", "-c", script)
    assert set(done.stdout.splitlines()) == {"é€😀" * 7}


def test_sixty_four_ranks_start_and_end():
    done = run("-n", 64, program(), "--version")
    assert len(done.stdout.splitlines()) == 64


def test_impossible_jobs_are_refused_before_anything_starts(tmp_path: Path):
    assert 'no program "nope"' in run("-n", 2, "nope", status=1).stderr
    assert "no directory" in run("--cwd", tmp_path / "x", "true", status=1).stderr
    assert "no script" in run("nope.py", status=1).stderr
    plain = tmp_path / "plain"
    plain.write_text("echo\n")
    assert "chmod +x" in run(plain, status=1).stderr


def test_directory_and_variables(tmp_path: Path):
    done = run(
        "--cwd", tmp_path, "--env", "A=x y", "--env", "B", *SH, "pwd; echo $A $B",
        env=environment(B="from here"),
    )  # fmt: skip
    assert done.stdout == f"{tmp_path}\nx y from here\n"


def test_a_variable_that_is_not_set_is_named():
    done = run("--env", "NOT_SET_HERE", "true", status=2)
    assert done.stderr == (
        "mccl launch: --env: NOT_SET_HERE is not set on this machine; set it, or give "
        "NOT_SET_HERE=VALUE\n"
    )
    assert "does not set a variable" in run("--env", "a b", "true", status=2).stderr


def test_this_machine_may_be_named_twice():
    script = "echo $LOCAL_RANK of $LOCAL_WORLD_SIZE"
    done = run("--hosts", "127.0.0.1,localhost", *SH, script)
    assert sorted(done.stdout.splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]


def test_each_entry_of_a_host_is_its_own(tmp_path: Path):
    file = tmp_path / "desk.json"
    entries = [
        {"ssh": "127.0.0.1", "ips": ["127.0.0.1"], "env": {"WHO": "first"}},
        {"ssh": "localhost", "ips": ["127.0.0.2"], "env": {"WHO": "second"}},
    ]
    file.write_text(json.dumps(entries))
    done = run("--hostfile", file, *SH, "echo $WHO $MCCL_LISTEN_ADDR; cat $MLX_HOSTFILE; echo")
    lines = done.stdout.splitlines()
    assert "[0] first 127.0.0.1" in lines
    assert "[1] second 127.0.0.2" in lines
    ring = json.loads(next(x for x in lines if x.startswith("[0] [["))[4:])
    assert [place[0].split(":")[0] for place in ring] == ["127.0.0.1", "127.0.0.2"]


def test_a_dry_run_and_the_variables_start_nothing(tmp_path: Path):
    touched = tmp_path / "touched"
    done = run("--hosts", "a,me@b:2222", "-n", 2, "--dry-run", "touch", touched)
    assert "# rank 3 of 4, on me@b:2222, by ssh" in done.stdout
    assert f"touch {touched}" in done.stdout
    assert "MLX_HOSTFILE=" in run("-n", 2, "--print-env", "touch", touched).stdout
    assert not touched.exists()


def test_bad_arguments_are_named():
    run(status=2)
    run("--hosts", "a b", "true", status=2)
    assert 'did you mean "--hosts"?' in run("--hostz", "a", "true", status=2).stderr
    run("-n", 0, "true", status=2)
    assert "rdma" in run("--backend", "jaccl", "true", status=2).stderr
    assert "jaccl" in run("--backend", "jacl", "true", status=2).stderr
    assert "salloc" in run("--slurm", "true", status=2).stderr


@pytest.mark.parametrize("flag", ["--hosts", "--hostfile", "--check", "--cwd", "--log-dir"])
def test_an_empty_value_is_not_the_default(flag: str):
    """An unset shell variable must not start a single rank on this machine."""
    assert "the value is empty" in run(flag, "", "true", status=2).stderr


def test_four_hundred_ranks_have_files_enough_and_the_shells_limit():
    """Ranks keep the limit of the shell, because programs that use select() rely on it."""
    limited = ("prlimit", "--nofile=256:")  # changes only the soft limit
    done = run("-n", 400, "--no-prefix", *SH, "ulimit -Sn", before=limited)
    assert done.stdout == "256\n" * 400
    refused = run("-n", 400, "true", before=("prlimit", "--nofile=256:512"), status=1)
    assert re.search(r"a job of 400 ranks needs \d+ open files, .* may open 512", refused.stderr)


def test_a_stray_process_does_not_delay_the_end_of_the_job(mark: str):
    script = f"[ $RANK = 1 ] && {{ setsid sh -c 'sleep 25; : {mark}' & exit 7; }}; sleep 1000"
    began = time.monotonic()
    done = run("-n", 2, *SH, script, status=7)
    assert time.monotonic() - began < 8
    assert "rank 1 of 2 on 127.0.0.1 exited with status 7" in done.stderr
    assert not marked(mark)


def test_later_output_of_a_stray_process_is_dropped():
    script = (
        "[ $RANK = 0 ] && exec sleep 4; echo mine; setsid sh -c 'sleep 2.5; echo late' & exit 0"
    )
    assert run("-n", 2, *SH, script).stdout == "[1] mine\n"


def test_an_mccl_job_meets():
    flags = ("--no-bounds", "--sizes", "8,1M", "--seconds", "0.01")
    done = run("-n", 4, program(), "bench", "all_reduce", *flags)
    assert "a job of 4 ranks" in done.stdout
