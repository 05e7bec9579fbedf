"""`mccl launch --max-restarts`: ranks that start again after a failure."""

import re
import signal
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from launching import environment, marked, program, run, unused_folders, wait_until

pexpect = pytest.importorskip("pexpect")

SH = ("--", "sh", "-c")
PYTHON = ("--", sys.executable, "-c")
needs_numpy = pytest.mark.skipif(find_spec("numpy") is None, reason="not installed: numpy")


@pytest.fixture(autouse=True)
def nothing_remains():
    """Checks that no job folder remains."""
    before = unused_folders()
    yield
    wait_until(lambda: unused_folders() <= before, unused_folders() - before)


def test_all_ranks_start_again_after_a_failure():
    script = (
        'echo "start $TORCHELASTIC_RESTART_COUNT"; test $TORCHELASTIC_RESTART_COUNT = 2 && exit; '
        "test $RANK = 1 && exit 3; sleep 1000"
    )
    done = run("-n", 2, "--max-restarts", 3, *SH, script)
    for restart in range(3):
        assert f"start {restart}" in done.stdout
    assert done.stderr.count("rank 1 of 2 on 127.0.0.1 exited with status 3") == 2
    assert "starting all ranks again, restart 2 of 3" in done.stderr
    assert "restart 3 of 3" not in done.stderr


def test_a_job_that_keeps_failing_ends_with_the_last_failure(tmp_path: Path):
    script = "echo started; exit $((TORCHELASTIC_RESTART_COUNT + 3))"
    done = run("-n", 1, "--max-restarts", 1, "--log-dir", tmp_path, *SH, script, status=4)
    assert done.stdout.count("started") == 2
    logs = [folder / "rank-0.log" for folder in tmp_path.iterdir() if not folder.is_symlink()]
    assert [log.read_text() for log in logs] == ["started\n"] * 2


def test_a_timeout_is_that_of_all_starts():
    script = "test $TORCHELASTIC_RESTART_COUNT = 0 && exit 1; sleep 1000"
    done = run("-n", 1, "--timeout", 3, "--max-restarts", 9, *SH, script, status=124)
    assert done.stderr.count("starting all ranks again") == 1
    assert "the job was ended after 3 s (--timeout)" in done.stderr


def test_only_the_failed_ranks_start_again(tmp_path: Path):
    script = (
        'echo "start $TORCHELASTIC_RESTART_COUNT"; cat; '
        "test $RANK = 1 && test $TORCHELASTIC_RESTART_COUNT != 2 && exit 3; exit 0"
    )
    words = ("-n", 3, "--max-restarts", 2, "--restart", "failed", "--log-dir", tmp_path)
    typed = tmp_path / "typed"
    typed.write_text("word\n")
    with typed.open() as stdin:
        done = run(*words, *SH, script, stdin=stdin)
    starts = [re.findall(rf"\[{rank}\] (.*)", done.stdout) for rank in range(3)]
    # A rank that starts again gets no input.
    assert starts == [["start 0", "word"], ["start 0", "word", "start 1", "start 2"], starts[0]]
    for restart in (1, 2):
        assert (
            "rank 1 of 3 on 127.0.0.1 exited with status 3; it starts again, "
            f"restart {restart} of 2" in done.stderr
        )
    assert "the job was ended" not in done.stderr
    log = (tmp_path / "latest" / "rank-1.log").read_text()
    assert log == "start 0\nword\nstart 1\nstart 2\n"


def test_a_rank_that_fails_too_often_ends_the_job(mark: str):
    script = f"test $RANK = 0 && sleep 1000; kill -9 $$; : {mark}"
    done = run("-n", 2, "--max-restarts", 1, "--restart", "failed", *SH, script, status=128 + 9)
    assert done.stderr.count("it starts again, restart 1 of 1") == 1
    assert "was killed by signal 9 (Killed); the job was ended" in done.stderr
    assert not marked(mark)


def test_ranks_do_not_start_again_in_a_job_that_ends():
    script = "trap 'exit 5' TERM; sleep 1000 & wait"
    words = ("-n", 2, "--timeout", 0.5, "--max-restarts", 9, "--restart", "failed")
    done = run(*words, *SH, script, status=124)
    assert "starts again" not in done.stderr


#: Begins programs of a job. tell() prints words with a digest of the job's key, in a single write.
JOB = """
    import hashlib, os, signal, sys
    import mccl.distributed as dist

    rank, restart = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    key = os.environ["MCCL_JOB_KEY"]
    assert len(key) >= 32

    def tell(*words):
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        sys.stdout.write(" ".join(map(str, (*words, "key", digest))) + "\\n")

    world = dist.init(connect_timeout=60)
"""


def program_of_job(code: str) -> str:
    return textwrap.dedent(JOB) + textwrap.dedent(code)


@needs_numpy
@pytest.mark.parametrize("dead", [0, 2])
def test_a_job_that_starts_again_has_the_same_key_and_another_meeting(dead: int):
    code = """
        tell("start", restart, "at", os.environ["MCCL_ROOT"])
        assert world.all_reduce(10 * int(restart) + rank) == 30 * int(restart) + 3
        if restart == "0":
            if rank == int(sys.argv[1]):
                os.kill(os.getpid(), signal.SIGKILL)
            world.barrier()
        sys.stdout.write(f"sum {world.all_reduce(rank)}\\n")
    """
    words = ("-n", 3, "--max-restarts", 1, "--no-prefix", *PYTHON, program_of_job(code), dead)
    done = run(*words)
    starts = re.findall(r"start (\d) at (\S+) key (\w+)\n", done.stdout)
    assert sorted(start for start, _, _ in starts) == ["0"] * 3 + ["1"] * 3, done.stdout
    assert len({key for _, _, key in starts}) == 1, done.stdout
    # The ranks of a start meet at one place, which no rank of the earlier start knows.
    assert len({(start, root) for start, root, _ in starts}) == 2, done.stdout
    assert len({root for _, root, _ in starts}) == 2, done.stdout
    assert done.stdout.count("sum 3\n") == 3, done.stdout


@needs_numpy
@pytest.mark.parametrize("dead", [0, 2])
def test_a_rank_that_starts_again_alone_is_met_by_reconfigure(dead: int):
    """The sum after the death includes the restart counts, so all three ranks made it."""
    code = """
        tell("start", restart)
        if restart == "0":
            if rank == int(sys.argv[1]):
                world.barrier()
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                while True:
                    world.barrier()
            except dist.PeerError as error:
                assert f"rank {sys.argv[1]} is gone" in str(error), error
            world = dist.reconfigure(timeout=60)
        total = world.all_reduce(10 * int(restart) + rank)
        sys.stdout.write(f"rank {world.rank} of {world.size}: sum {total}\\n")
    """
    words = ("-n", 3, "--max-restarts", 1, "--restart", "failed", "--no-prefix")
    done = run(*words, *PYTHON, program_of_job(code), dead)
    starts = re.findall(r"start (\d) key (\w+)\n", done.stdout)
    assert sorted(start for start, _ in starts) == ["0"] * 3 + ["1"], done.stdout
    assert len({key for _, key in starts}) == 1, done.stdout
    for rank in range(3):
        assert done.stdout.count(f"rank {rank} of 3: sum 13\n") == 1, done.stdout


def test_restart_failed_needs_a_number_of_restarts():
    done = run("-n", 2, "--restart", "failed", *SH, "true", status=2)
    assert "--restart failed has no effect without --max-restarts N" in done.stderr


def test_mpirun_cannot_start_ranks_again():
    done = run("--backend", "mpi", "--max-restarts", 1, *SH, "true", status=2)
    assert "--max-restarts does not work with --backend mpi" in done.stderr


def test_a_program_that_cannot_be_run_does_not_start_again():
    script = "exit 127"
    done = run("-n", 1, "--max-restarts", 9, "--restart", "failed", *SH, script, status=127)
    assert "starts again" not in done.stderr


def test_children_of_a_failed_rank_end_before_it_starts_again(mark: str):
    script = (
        "test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0; "
        f"sh -c 'trap : TERM; while :; do sleep 1000; done; : {mark}' & kill -9 $$"
    )
    run("-n", 1, "--max-restarts", 1, "--restart", "failed", *SH, script)
    assert not marked(mark)


def test_control_c_ends_a_job_whose_only_rank_started_again():
    script = "test $TORCHELASTIC_RESTART_COUNT = 0 && exit 3; echo waits; sleep 1000"
    words = ["launch", "-n", "1", "--max-restarts", "1", "--restart", "failed", *SH, script]
    child = pexpect.spawn(str(program()), words, env=environment(), timeout=30)
    child.expect_exact("waits")
    child.send("\x03")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 128 + signal.SIGINT
