"""A rank that is killed while others wait for it on their GPUs: what waits ends, and says who."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import sharing
import torch

#: Long enough that only the death can have ended what it ends.
TIMEOUT_S = 300
LIMIT_S = 60


def rank_main(rank: int, store: str, backend: str, waits: bool) -> None:
    """One of two ranks. Rank 1 kills itself when both have met on their GPUs."""
    from datetime import timedelta

    import torch.distributed as dist

    sharing.choose(backend)
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        "mccl",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    data = torch.ones(1 << 20, device="cuda")
    for _ in range(3):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    signals = dist.FileStore(f"{store}.signals", 2)
    if rank == 1:
        signals.wait(["the other waits"])
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(data, async_op=not waits)
    signals.set("the other waits", "1")
    if not waits:
        try:
            work.wait(timedelta(seconds=TIMEOUT_S))
        except RuntimeError as error:
            print(f"the wait: {error}", flush=True)
    torch.cuda.synchronize()
    print("the GPU is free", flush=True)
    try:
        dist.all_reduce(data)
        torch.cuda.synchronize()
        print("nothing was said", flush=True)
    except RuntimeError as error:
        print(f"the next call: {error}", flush=True)


@pytest.mark.parametrize("waits", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("backend", sharing.WAYS)
def test_a_death_ends_what_waits_for_it(backend, waits):
    sharing.skip_what_needs_two_gpus(backend)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, str(rank), f"{folder}/store", backend, str(int(waits))],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            said, _ = ranks[0].communicate(timeout=LIMIT_S)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    assert "the GPU is free" in said, said
    assert "the next call: " in said, said
    assert "rank 1 is gone" in said.split("the next call: ")[1], said
    if not waits:
        assert "rank 1 is gone" in said.split("the GPU is free")[0], said


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    rank_main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "1")
