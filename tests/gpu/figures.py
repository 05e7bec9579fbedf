"""How long an all_reduce of bf16 takes on GPUs: our kernels, NCCL, torch's symmetric memory.

    torchrun --nproc_per_node=2 --standalone tests/gpu/figures.py [graphs|host]

graphs: medians of runs of a CUDA graph of many calls, microseconds a call. host: the path through
the host, beside what its copies and the same call on pinned host memory take.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))
from timing import Timer, calls_in_a_row, median

KIB, MIB = 1 << 10, 1 << 20
SIZES = [KIB, 8 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB]
SIZES += [MIB, 2 * MIB, 4 * MIB, 8 * MIB, 64 * MIB, 512 * MIB]


def graphs(rank: int, where: torch.device) -> None:
    timer = Timer(dist.new_group(backend="gloo"))
    nccl = dist.new_group(backend="nccl")
    if rank == 0:
        print(
            f"torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, "
            f"{torch.cuda.get_device_name()}"
        )
        print(f"{'bytes':>12} {'mccl':>9} {'nccl':>9} {'one-shot':>9} {'two-shot':>9} {'/nccl':>6}")
    for size in SIZES:
        count = size // 2
        calls = calls_in_a_row(size)
        data = torch.randn(count, device=where).bfloat16()
        # As calls follow each other in place, sums would grow: averages do not.
        average = functools.partial(dist.all_reduce, data, op=dist.ReduceOp.AVG)
        ours = timer.in_graph(average, calls)
        theirs = timer.in_graph(functools.partial(average, group=nccl), calls)
        shared = symmetric.empty(count, dtype=torch.bfloat16, device=where)
        symmetric.rendezvous(shared, nccl.group_name)
        shared.zero_()
        others = []
        for name in ("one_shot_all_reduce", "two_shot_all_reduce_"):
            operation = functools.partial(
                getattr(torch.ops.symm_mem, name), shared, "sum", nccl.group_name
            )
            others.append(timer.in_graph(operation, calls))
        if rank == 0:
            print(
                f"{size:12d} {ours:9.1f} {theirs:9.1f} {others[0]:9.1f} {others[1]:9.1f} "
                f"{ours / theirs:6.2f}",
                flush=True,
            )
        del data


def through_host(rank: int, where: torch.device) -> None:
    def time_of(call: Callable[[], object], repeats: int) -> float:
        times = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            dist.barrier()
            begin = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) * 1e6)
        return median(times)

    if rank == 0:
        print(
            f"{'bytes':>12} {'on GPUs':>9} {'on host':>9} {'copies':>9}   "
            "longer / GPUs   (host + copies) / GPUs"
        )
    for size in [1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]:
        count, repeats = size // 4, 30 if size < 16 << 20 else 9
        data, on_host = torch.zeros(count, device=where), torch.zeros(count).pin_memory()
        pinned = torch.zeros(count, pin_memory=True)

        def copies(data: torch.Tensor = data, pinned: torch.Tensor = pinned) -> None:
            pinned.copy_(data, non_blocking=True)
            data.copy_(pinned, non_blocking=True)

        for _ in range(3):
            dist.all_reduce(data)
            dist.all_reduce(on_host)
        found = time_of(functools.partial(dist.all_reduce, data), repeats)
        wire = time_of(functools.partial(dist.all_reduce, on_host), repeats)
        moved = time_of(copies, repeats)
        if rank == 0:
            print(
                f"{size:12d} {found:9.0f} {wire:9.0f} {moved:9.0f}   "
                f"{max(wire, moved) / found:13.2f}   {(wire + moved) / found:22.2f}",
                flush=True,
            )


def main() -> None:
    import mccl

    rank = int(os.environ["LOCAL_RANK"])
    where = torch.device("cuda", rank)
    torch.cuda.set_device(where)
    through = len(sys.argv) > 1 and sys.argv[1] == "host"
    mccl.init(backend="native" if through else "cuda")
    dist.init_process_group("mccl")
    (through_host if through else graphs)(rank, where)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
