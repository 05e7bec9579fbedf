"""Times an all_reduce of f32 on GPU memory through host memory, and its parts.

    torchrun --nproc_per_node=2 --standalone bench/gpu/through_host.py

Prints medians in microseconds: of the call on GPU memory, of the call on pinned host memory, and of
the copies between the two.
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

sys.path.insert(0, str(Path(__file__).parent))
from timing import median


def measure(rank: int, where: torch.device) -> None:
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
    mccl.init(backend="native")
    dist.init_process_group("mccl")
    measure(rank, where)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
