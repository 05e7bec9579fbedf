"""Measures the CPU time of a call from Python, and the shares of torch and MCCL in it.

    torchrun --nproc_per_node=2 --standalone bench/gpu/host_time.py [--cpu]

Prints microseconds on rank 0: medians of batches of 20 calls. A call of torch's `fake` group does
nothing, so its time is what torch needs for any group. A call on an empty tensor includes all of
MCCL's work except the launch of the kernel. --cpu measures torch alone, for machines without a GPU.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg  # noqa: F401 (registers the backend)

CALLS, BATCHES = 20, 50


def host_time(call: Callable[[], object], settle: Callable[[], object]) -> float:
    """Returns microseconds from the start of a call until it returns."""
    for _ in range(100):
        call()
    settle()
    times = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - begin) / CALLS * 1e6)
        settle()
    return sorted(times)[BATCHES // 2]


def of_torch(data: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Returns calls of a `fake` group, from torch's outermost layer to its innermost."""
    fake = dist.new_group(backend="fake")
    options = dist.AllreduceOptions()
    options.asyncOp = False
    work = fake.allreduce([data], options)
    return {
        "torch alone: dist.all_reduce": partial(dist.all_reduce, data, group=fake),
        "torch alone: group.allreduce": partial(fake.allreduce, [data], options),
        "torch alone: backend.allreduce": partial(
            fake._get_backend(data.device).allreduce, [data], options
        ),
        "torch alone: work.wait": work.wait,
    }


def of_mccl(data: torch.Tensor) -> dict[str, Callable[[], object]]:
    own = dist.group.WORLD._get_backend(data.device)
    nothing = data[:0]
    options = dist.AllreduceOptions()
    options.asyncOp = False
    return {
        "mccl: dist.all_reduce": partial(dist.all_reduce, data),
        "mccl: dist.all_reduce, async_op": partial(dist.all_reduce, data, async_op=True),
        "mccl: backend.allreduce": partial(own.allreduce, [data], options),
        "mccl: all_reduce_now": partial(own.all_reduce_now, data),
        "mccl: dist.all_reduce, empty": partial(dist.all_reduce, nothing),
        "mccl: backend.allreduce, empty": partial(own.allreduce, [nothing], options),
        "mccl: all_reduce_now, empty": partial(own.all_reduce_now, nothing),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true")
    on_cpu = parser.parse_args().cpu
    where = torch.device("cpu" if on_cpu else f"cuda:{os.environ['LOCAL_RANK']}")
    if on_cpu:
        dist.init_process_group("gloo")
    else:
        import mccl

        torch.cuda.set_device(where)
        mccl.init(backend="cuda")
        dist.init_process_group("mccl")
    data = torch.zeros(512, dtype=torch.bfloat16, device=where)
    calls = of_torch(data)
    if not on_cpu:
        nccl = dist.new_group(backend="nccl")
        calls |= of_mccl(data) | {
            "nccl: dist.all_reduce": partial(dist.all_reduce, data, group=nccl)
        }
        calls["a kernel of torch (add_)"] = partial(data.add_, data)
    settle = (lambda: None) if on_cpu else torch.cuda.synchronize
    for name, call in calls.items():
        found = host_time(call, settle)
        if dist.get_rank() == 0:
            print(f"host time, {name}: {found:.2f} us", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
