"""A rank that others wait for on their GPUs dies, stops, is late or makes another call.

The others' calls end and name it.
"""

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

#: Far above LIMIT_S, so that only the death, not the timeout, can end a wait.
TIMEOUT_S = 300
LIMIT_S = 60
#: Values of `ends_by` for a rank that does not end.
LATE, DIFFERS = 0, -1
LATE_S = 5


def rank_main(rank: int, size: int, store: str, backend: str, waits: bool, ends_by: int) -> None:
    """One of `size` ranks. The last one sends itself a signal once all wait on their GPUs.

    If `ends_by` is LATE, it makes no call instead, and if it is DIFFERS, another one.
    """
    from datetime import timedelta

    import torch.distributed as dist

    sharing.choose(backend)
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        "mccl",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=LATE_S if ends_by == LATE else TIMEOUT_S),
    )
    data = torch.ones(1 << 20, device="cuda")
    for _ in range(3):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    signals = dist.FileStore(f"{store}.signals", size)
    if rank == size - 1:
        signals.wait([f"{other} waits" for other in range(size - 1)])
        if ends_by == LATE:
            signals.wait([f"{other} was told" for other in range(size - 1)])
            os._exit(0)
        if ends_by > 0:
            os.kill(os.getpid(), ends_by)
        data = data[:7]
    work = dist.all_reduce(data, async_op=not waits)
    signals.set(f"{rank} waits", "1")
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
    signals.set(f"{rank} was told", "1")


def use_gpus() -> None:
    """A new process multiplies on each GPU."""
    script = (
        "import torch\nfor i in range(torch.cuda.device_count()):\n"
        "    x = torch.ones(256, 256, device=i)\n    assert (x @ x).sum().item() == 256.0**3"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT_S)


def run_ranks(backend: str, waits: bool, ends_by: int, size: int) -> list[str]:
    """Returns the output of all ranks but the last, or of all if the last one does not end."""
    sharing.skip_what_needs_two_gpus(backend)
    with tempfile.TemporaryDirectory() as folder:
        common = [str(size), f"{folder}/store", backend, str(int(waits)), str(int(ends_by))]
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, str(rank), *common],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env=os.environ | {"MCCL_LIVENESS_INTERVAL": "5"},
            )
            for rank in range(size)
        ]  # fmt: skip
        try:
            told = ranks if ends_by == DIFFERS else ranks[:-1]
            return [rank.communicate(timeout=LIMIT_S)[0] for rank in told]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


SIZES = pytest.mark.parametrize("size", [2, *range(4, torch.cuda.device_count() + 1, 4)])


@SIZES
@pytest.mark.parametrize(
    ("ends_by", "waits"),
    [(signal.SIGKILL, True), (signal.SIGKILL, False), (signal.SIGSTOP, False)],
    ids=["dies-sync", "dies-async", "stops-async"],
)
@pytest.mark.parametrize("backend", sharing.WAYS)
def test_a_rank_that_ends_is_named(backend, waits, ends_by, size):
    last = size - 1
    for said in run_ranks(backend, waits, ends_by, size):
        assert "the GPU is free" in said, said
        assert "the next call: " in said, said
        assert f"rank {last} " in said.split("the next call: ")[1], said
        if not waits:
            assert f"rank {last} " in said.split("the GPU is free")[0], said
    use_gpus()


def each_way(test):
    test = pytest.mark.parametrize("waits", [True, False], ids=["sync", "async"])(test)
    return SIZES(pytest.mark.parametrize("backend", ["cuda", "nccl"])(test))


@each_way
def test_a_late_rank_is_named(backend, waits, size):
    for said in run_ranks(backend, waits, LATE, size):
        assert "the GPU is free" in said, said
        error = said.split("the next call: " if waits else "the wait: ")[1]
        assert f"rank {size - 1}" in error, said


@each_way
def test_calls_that_differ_are_named(backend, waits, size):
    for said in run_ranks(backend, waits, DIFFERS, size):
        assert "the GPU is free" in said, said
        error = said.split("the next call: ")[1]
        assert "all_reduce #4 on GPU memory (sum of 7 f32)" in error, said
        assert "all_reduce #4 on GPU memory (sum of 1048576 f32)" in error, said
    use_gpus()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    rank_main(
        int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5] == "1",
        int(sys.argv[6]),
    )  # fmt: skip
