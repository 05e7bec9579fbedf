"""A process in a job: how it finds the job, how it leaves, and what its children may do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from rank_processes import LIMIT, finish, run, run_ranks, start, well
from world_pool import free_address


def test_the_remaining_ranks_continue_after_a_death():
    code = """
        import os, signal
        world = dist.init()
        world.barrier()
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                world.all_reduce(1)
        except dist.PeerError as error:
            assert "rank 1 is gone" in str(error), error
        rest = world.shrink(timeout=30)
        print(rest.rank, "of", rest.size, "sum", rest.all_reduce(world.rank))
        rest.barrier()
    """
    done = run_ranks(code, 3)
    assert well([done[0], done[2]]) == ["0 of 2 sum 2\n", "1 of 2 sum 2\n"]


#: Every rank makes 9 sums, and meets its replacements after an error. DIES and SLEEPS are
#: replaced.
ELASTIC = """
    import os, signal, time
    world = dist.init(connect_timeout=30)
    step = int(world.all_reduce(0, op="max"))
    while step < 9:
        if world.rank == DIES and step == 3 and "AGAIN" not in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            last = int(world.all_reduce(1))
            step += 1
        except dist.PeerError as error:
            time.sleep(SLEEPS)
            world = dist.reconfigure(timeout=30)
            step = int(world.all_reduce(step, op="max"))
            continue
        if "AGAIN" in os.environ and step == 1:
            step = 3
    print(world.rank, "of", world.size, "sum", last)
"""


@pytest.mark.parametrize("dead", [0, 2])
@pytest.mark.parametrize("sleeps", [0, 1], ids=["replacement comes last", "replacement waits"])
def test_a_replacement_joins_by_reconfigure(dead: int, sleeps: int):
    code = ELASTIC.replace("DIES", str(dead)).replace("SLEEPS", str(sleeps))
    place = {"MCCL_WORLD_SIZE": "3", "MCCL_ROOT": free_address()}
    ranks = [start(code, MCCL_RANK=str(rank), **place) for rank in range(3)]
    assert finish(ranks[dead])[0] == -signal.SIGKILL
    ranks[dead] = start(code, MCCL_RANK=str(dead), AGAIN="1", **place)
    done = [finish(process) for process in ranks]
    assert well(done) == [f"{rank} of 3 sum 3\n" for rank in range(3)]


def test_a_job_grows_and_moves_to_another_address():
    """Rank 0 of three dies, as if with its host, and three new processes join the other two."""
    code = """
        import os, signal
        world = dist.init(connect_timeout=30)
        world.barrier()
        if world.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                world.all_reduce(1)
        except dist.PeerError:
            pass
        ports = [{"root": f"127.0.0.1:{port}"} for port in (0, 99999, "")]
        for wrong in (*ports, {"rank": 7}, {"size": 0}, {"size": 1}, {"root": "nowhere"}):
            try:
                dist.reconfigure(**wrong)
                print("accepted", wrong)
            except dist.InvalidArgument:
                assert dist.init() is world
        world = dist.reconfigure(rank=world.rank - 1, size=5, root="ROOT")
        print(world.rank, "of", world.size, "sum", world.all_reduce(1))
        world = dist.reconfigure()
        print(world.rank, "of", world.size, "sum", world.all_reduce(1))
    """
    root = free_address()
    joins = """
        world = dist.init(connect_timeout=30)
        print(world.rank, "of", world.size, "sum", world.all_reduce(1))
        world = dist.reconfigure()
        print(world.rank, "of", world.size, "sum", world.all_reduce(1))
    """
    first = {"MCCL_WORLD_SIZE": "3", "MCCL_ROOT": free_address()}
    ranks = [start(code.replace("ROOT", root), MCCL_RANK=str(rank), **first) for rank in range(3)]
    assert finish(ranks[0])[0] == -signal.SIGKILL
    second = {"MCCL_WORLD_SIZE": "5", "MCCL_ROOT": root}
    ranks = ranks[1:] + [start(joins, MCCL_RANK=str(rank), **second) for rank in (2, 3, 4)]
    done = [finish(process) for process in ranks]
    assert well(done) == [f"{rank} of 5 sum 5\n" * 2 for rank in range(5)]


def test_reconfigure_keeps_what_the_launcher_gave():
    code = """
        world = dist.init()
        world = dist.reconfigure(size=2)
        print(world.rank, "of", world.size, "sum", world.all_reduce(1))
    """
    host, _, port = free_address().partition(":")
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": host, "MASTER_PORT": port}
    ranks = [start(code, RANK=str(rank), **place) for rank in range(2)]
    assert well([finish(process) for process in ranks]) == ["0 of 2 sum 2\n", "1 of 2 sum 2\n"]


def test_reconfigure_without_a_job_or_with_a_bad_timeout_changes_nothing():
    code = """
        for timeout in (None, 0):
            try:
                dist.reconfigure(timeout=timeout)
            except dist.InvalidArgument as error:
                print(error)
            dist.init()
        print(dist.init().all_reduce(5))
    """
    ((status, out, err),) = [run(code)]
    assert status == 0, err
    first, second, rest = out.splitlines()
    assert first == "reconfigure: this process is in no job; call init()"
    assert second == "reconfigure: timeout: expected a positive number; found 0"
    assert rest == "5"


def test_a_forked_child_belongs_to_no_job():
    code = """
        import os
        world = dist.init(rank=0, size=1)
        child = os.fork()
        if child == 0:
            try:
                dist.reconfigure()
            except dist.InvalidArgument as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(dist.reconfigure().all_reduce(5))
    """
    ((status, out, err),) = [run(code)]
    assert status == 0, err
    assert out.splitlines() == ["reconfigure: this process is in no job; call init()", "5"]


def test_leaving_in_a_callback_is_refused_and_changes_nothing():
    code = """
        import threading
        world = dist.init(rank=0, size=1)
        for leave in (dist.shutdown, dist.reconfigure):
            seen = threading.Event()
            def call():
                try:
                    leave()
                except dist.InvalidArgument as error:
                    print(error)
                seen.set()
            world.all_reduce(1, wait=False).on_done(call)
            assert seen.wait(30)
        print(dist.reconfigure().all_reduce(5))
    """
    ((status, out, err),) = [run(code)]
    assert status == 0, err
    first, second, rest = out.splitlines()
    assert first == second
    assert "a callback of a call cannot leave the job" in first
    assert rest == "5"


def test_alone():
    code = """
        world = dist.init()
        assert (world.rank, world.size, world.name) == (0, 1, "world"), world
        assert dist.is_initialized() and dist.init() is world
        assert world.all_reduce(2.5) == 2.5 and world.broadcast(3) == 3
        assert world.all_gather([1, 2]).tolist() == world.scatter([1, 2]).tolist() == [1, 2]
        assert world.all_to_all([4]).tolist() == world.reduce_scatter([4]).tolist() == [4]
        assert world.gather(7).tolist() == [7] and world.reduce(7) == 7
        world.barrier()
        assert world.split(0).size == 1 and world.split(-1) is None
        assert world.shrink().size == 1
        print(world)
    """
    assert well([run(code)]) == ["<mccl.distributed.Group 'world': rank 0 of 1>\n"]


def test_the_five_lines():
    code = """
        import numpy as np
        world = dist.init()
        print(world.all_reduce(np.arange(3.0) + world.rank))
    """
    assert well(run_ranks(code, 3)) == ["[3. 6. 9.]\n"] * 3


def test_torchrun_tells_the_place():
    code = "print(dist.init().all_gather(dist.init().rank))"
    port = free_address().rpartition(":")[2]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [start(code, RANK=str(rank), **shared) for rank in range(2)]
    assert well([finish(process) for process in processes]) == ["[0 1]\n"] * 2


@pytest.mark.parametrize(
    ("settings", "environment", "says"),
    [
        ("rank=0", {}, "MCCL_RANK is set and MCCL_WORLD_SIZE is not"),
        ("", {"MCCL_WORLD_SIZE": "2"}, "MCCL_WORLD_SIZE is set and MCCL_RANK is not"),
        ("rank=0, size=2", {}, "MCCL_ROOT is not set: the 2 ranks connect through it"),
        (
            "rank=2, size=2, root='127.0.0.1:1'",
            {},
            "rank 2, as set by MCCL, is outside 0 to 1",
        ),
        ("", {"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
        ("size=-5", {}, "size"),
        ("timout=3", {}, "timeout"),
        ("timeout='soon'", {}, "timeout"),
        ("rank=0, size=2, root='nowhere'", {}, "nowhere"),
        ("", {"MCCL_RANC": "1"}, "MCCL_RANK"),
    ],
)
def test_an_impossible_init_is_an_error(settings, environment, says):
    code = f"""
        try:
            dist.init({settings})
        except dist.InvalidArgument as error:
            print(error)
        assert not dist.is_initialized()
        assert dist.init(rank=0, size=1) if {not environment} else True
    """
    (out,) = well([run(code, **environment)])
    assert says in out


def test_missing_ranks_are_an_error():
    code = """
        try:
            dist.init(connect_timeout=0.3)
        except dist.TimeoutError as error:
            print(error)
    """
    status, out, err = run(code, MCCL_RANK="0", MCCL_WORLD_SIZE="2", MCCL_ROOT=free_address())
    assert status == 0, err
    assert "mccl" in out or "rank" in out


def test_settings_that_differ():
    code = """
        import os
        try:
            dist.init(chunk_bytes=65536 * (1 + int(os.environ["MCCL_RANK"])))
        except dist.MismatchError as error:
            print(error)
    """
    for out in well(run_ranks(code)):
        assert "chunk_bytes" in out


def test_control_c_while_meeting():
    code = """
        import os, signal, threading
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            dist.init(connect_timeout=600)
        except KeyboardInterrupt:
            print("interrupted")
    """
    # A child of a shell's background job ignores SIGINT.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + (
        textwrap.dedent(code)
    )
    status, out, err = run(code, MCCL_RANK="0", MCCL_WORLD_SIZE="2", MCCL_ROOT=free_address())
    assert (status, out) == (0, "interrupted\n"), err


@pytest.mark.parametrize(
    "leave",
    [
        "",
        *(
            pytest.param(leave, marks=pytest.mark.long)
            for leave in ("dist.shutdown()", "raise SystemExit(0)")
        ),
        "dist.shutdown(); dist.shutdown()",
        "del world",
    ],
)
def test_leaving(leave):
    code = f"""
        world = dist.init()
        world.barrier()
        {leave}
    """
    well(run_ranks(code))


def test_leaving_with_calls_pending():
    code = """
        import asyncio
        import numpy as np
        world = dist.init()
        world.barrier()
        works = [world.recv(np.empty(100), wait=False) for _ in range(3)]
        works[0].on_done(lambda: print("told", works[0].error() is not None))
        world.recv(np.empty(100), wait=False)
        del works[2]
    """
    assert well(run_ranks(code)) == ["told True\n"] * 2


def test_a_child_of_fork():
    code = """
        import os
        world = dist.init()
        pending = world.recv(bytearray(3), wait=False)
        child = os.fork()
        if child == 0:
            assert not dist.is_initialized()
            try:
                world.all_reduce(1)
            except dist.InvalidArgument as error:
                assert "child of a fork" in str(error), error
                assert dist.init(rank=0, size=1, root="").all_reduce(3) == 3
                raise SystemExit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert world.all_reduce(1) == 2
        world.send(b"abc", 1 - world.rank)
        pending.wait()
    """
    well(run_ranks(code))


def test_import_of_the_package_stays_cheap():
    code = "import sys, mccl; print('numpy' in sys.modules, 'mccl._distributed' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT
    ).stdout
    assert out == "False False\n"


def test_without_numpy_what_is_missing_is_named():
    code = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numpy" else find(name, *rest)
import mccl.distributed
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1
    assert "mccl.distributed needs NumPy: pip install" in done.stderr


def test_metrics_count_the_calls():
    code = """
        import mccl
        world = dist.init()
        mccl.reset_metrics()
        for _ in range(10):
            world.all_reduce([1.0, 2.0])
        print(mccl.get_metrics().total_ops)
    """
    assert well(run_ranks(code)) == ["10\n"] * 2


def test_the_flight_record_has_the_calls_even_after_the_world():
    code = """
        import mccl
        assert mccl.flight_record() is None
        world = dist.init()
        for _ in range(3):
            world.all_reduce([1.0, 2.0])
        dist.shutdown()
        calls = mccl.flight_record()["calls"]
        print([(c["sequence"], c["bytes"], c["state"]) for c in calls if c["call"] == "all_reduce"])
    """
    expected = f"{[(number, 16, 'done') for number in (1, 2, 3)]}\n"
    assert well(run_ranks(code)) == [expected] * 2


def test_mccl_init_after_the_world_warns():
    code = """
        import warnings
        import mccl
        warnings.simplefilter("error")
        mccl.init(log_level="WARN")
        dist.init()
        try:
            mccl.init(log_level="INFO")
        except RuntimeWarning as warning:
            assert "too late for the world of mccl.distributed" in str(warning), warning
            print("warned")
        dist.shutdown()
        mccl.init()
    """
    status, out, err = run(code)
    assert (status, out) == (0, "warned\n"), err


def test_the_default_port_may_be_given_to_a_world_that_has_it():
    code = """
        dist.init()
        dist.init(port_base=29600)
        try:
            dist.init(port_base=29700)
        except dist.InvalidArgument as error:
            assert "the world was made with 29600" in str(error), error
            print("refused")
    """
    environment = {name: value for name, value in os.environ.items() if name != "MCCL_PORT_BASE"}
    process = subprocess.Popen(
        [sys.executable, "-c", "import mccl.distributed as dist\n" + textwrap.dedent(code)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    status, out, err = finish(process)
    assert (status, out) == (0, "refused\n"), err


@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize(
    "closed",
    [*(pytest.param(closed, marks=pytest.mark.long) for closed in ((0,), (1,), (2,))), (0, 1, 2)],
    ids=str,
)
def test_closed_standard_streams_stay_closed(tmp_path, closed: tuple[int, ...], transport: str):
    """Sockets must not reuse the numbers of closed standard streams: logs would go into them."""
    code = """
        import os, pathlib, sys, traceback
        answer = pathlib.Path(sys.argv[1])
        try:
            world = dist.init()
            half = world.split(world.rank)
            total = world.all_reduce(1.0) + half.all_reduce(1.0)
            taken = [n for n in map(int, sys.argv[2:]) if os.path.lexists(f"/proc/self/fd/{n}")]
            answer.write_text(f"{total} {taken}")
            dist.shutdown()
        except BaseException:
            answer.write_text(traceback.format_exc())
    """
    root = free_address()
    words = f'exec "$0" "$@" {" ".join(f"{n}>&-" for n in closed)}'
    ranks = [
        subprocess.Popen(
            [
                "sh", "-c", words, sys.executable, "-c",
                "import mccl.distributed as dist\n" + textwrap.dedent(code),
                str(tmp_path / str(rank)), *map(str, closed),
            ],
            env={
                **{name: value for name, value in os.environ.items() if "MCCL_" not in name},
                "MCCL_PORT_BASE": "0", "MCCL_RANK": str(rank), "MCCL_WORLD_SIZE": "2",
                "MCCL_ROOT": root, "MCCL_TRANSPORT": transport, "MCCL_LOG_LEVEL": "TRACE",
            },
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        assert [rank.wait(timeout=LIMIT) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    answers = [(tmp_path / str(rank)).read_text() for rank in range(2)]
    assert answers == ["3.0 []"] * 2
