"""Default groups that are made again, with a new process in place of a dead rank."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from launching import run

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
