"""Default groups that are made again after a death, with new processes for one or all ranks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import wired_hosts
from launching import PATIENCE, environment, heed_signals, marked, run

pytest.importorskip("torch")

PROGRAM = """
    import datetime, os, signal, sys
    import torch
    import torch.distributed as dist

    def meet():
        limit = datetime.timedelta(seconds=60)
        dist.init_process_group("mccl", init_method="mccl://", timeout=limit)

    meet()
    rank = dist.get_rank()
    is_new = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
    step = torch.zeros(1)
    dist.all_reduce(step, op=dist.ReduceOp.MAX)
    while step < 10:
        if rank == int(sys.argv[1]) and step == 5 and not is_new:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            total = torch.ones(3)
            dist.all_reduce(total)
            step += 1
        except dist.DistBackendError as error:
            assert f"rank {sys.argv[1]} is gone" in str(error), error
            # The traceback keeps the former group alive.
            dist.destroy_process_group()
            meet()
            dist.all_reduce(step, op=dist.ReduceOp.MAX)
            print("continues at", int(step))
    print("sum", total.tolist())
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("dead", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_default_group_is_made_again_with_a_replacement(tmp_path: Path, dead: int):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    words = ("-n", 3, "--max-restarts", 1, "--restart", "failed", sys.executable, script, dead)
    done = run(*words)
    assert done.stdout.count("continues at 5") == 2, done.stdout
    assert done.stdout.count("sum [3.0, 3.0, 3.0]") == 3, done.stdout


RESTARTED = """
    import datetime, os, signal, sys
    import torch
    import torch.distributed as dist

    dist.init_process_group("mccl", timeout=datetime.timedelta(seconds=60))
    rank, restart = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
    # Shared memory carries the larger sum.
    for count in (1, 1_000_000):
        total = torch.full((count,), rank + 1)
        dist.all_reduce(total)
        assert total.eq(3).all(), total
    if restart == "0" and rank == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    if restart == "0":
        dist.barrier()
        print("the death was not noticed")
    # A single write, because both ranks print to one stream.
    sys.stdout.write(f"restart {restart}: sum {int(total[0])}\\n")
    dist.destroy_process_group()
"""

#: Runs a job in a network and a /dev/shm of its own, and lists what the job leaves there.
APART = """
    ip link set lo up && mount -t tmpfs tmpfs /dev/shm || exit 9
    "$@"
    status=$?
    echo "left in memory: $(ls -A /dev/shm)" && echo "left ports: $(ss -Hltun)"
    exit $status
"""


@pytest.mark.skipif(bool(why := wired_hosts.missing()), reason=why)
@pytest.mark.parametrize("dead", [0, pytest.param(1, marks=pytest.mark.long)])
def test_torchrun_restarts_all_ranks_and_leaves_nothing(tmp_path: Path, mark: str, dead: int):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(RESTARTED))
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    words = (*torchrun, "--max-restarts=1", script, dead, mark)
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", APART, "-", *map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * PATIENCE,
        env=environment(OMP_NUM_THREADS="1"), preexec_fn=heed_signals,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = sorted(done.stdout.splitlines())
    expected = ["left in memory: ", "left ports: ", *["restart 1: sum 3"] * 2]
    assert lines == expected, done.stdout + done.stderr
    assert not marked(mark)
