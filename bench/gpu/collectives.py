"""Times collectives on GPUs: MCCL's kernels beside NCCL and torch's symmetric memory.

    torchrun --nproc_per_node=2 --standalone bench/gpu/collectives.py [--calls all_reduce]
        [--dtypes bf16] [--ways graph] [--sizes 1K,8M] [--backend cuda]

Prints microseconds per call: medians over batches of calls on the slowest rank. The libraries take
turns. `bytes` is the length of the longer buffer of a call. With `graph`, the calls are captured in
a CUDA graph and replayed; with `eager`, they are enqueued one by one while the GPU works. The last
columns show MCCL's time divided by NCCL's, and by that of torch's fastest kernel where torch has
one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

sys.path.insert(0, str(Path(__file__).parent))
from timing import KIB, MIB, Timer, bytes_of, calls_in_a_row

CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
SIZES = [KIB, 8 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB, 64 * MIB, 512 * MIB]

Call = Callable[[], object]


def call_of(name: str, whole: torch.Tensor, group: dist.ProcessGroup | None) -> Call:
    """Returns the call whose longer buffer is `whole`. If `group` is None, it uses MCCL."""
    part = torch.zeros_like(whole[: whole.numel() // dist.get_world_size()])
    if name == "all_reduce":
        # Repeated sums in place would overflow; averages do not.
        return partial(dist.all_reduce, whole, op=dist.ReduceOp.AVG, group=group)
    if name == "all_gather":
        return partial(dist.all_gather_into_tensor, whole, part, group=group)
    if name == "reduce_scatter":
        return partial(dist.reduce_scatter_tensor, part, whole, group=group)
    if name == "all_to_all":
        return partial(dist.all_to_all_single, torch.zeros_like(whole), whole, group=group)
    return partial(dist.broadcast, whole, src=0, group=group)


def calls_of_torch(name: str, shared: torch.Tensor, group: str) -> dict[str, Call]:
    """Returns torch's kernels for the same call on `shared`, which lies in symmetric memory."""
    if name != "all_reduce":
        return {}
    kernels = torch.ops.symm_mem
    return {
        "one-shot": partial(kernels.one_shot_all_reduce, shared, "sum", group),
        "two-shot": partial(kernels.two_shot_all_reduce_, shared, "sum", group),
    }


def row(
    name: str, size: int, dtype: torch.dtype, way: str, timer: Timer, nccl: dist.ProcessGroup
) -> dict[str, float]:
    count = size // dtype.itemsize
    where = torch.device("cuda", torch.cuda.current_device())
    calls: dict[str, Call] = {
        "mccl": call_of(name, torch.randn(count, device=where).to(dtype), None),
        "nccl": call_of(name, torch.randn(count, device=where).to(dtype), nccl),
    }
    if name == "all_reduce":
        shared = symmetric.empty(count, dtype=dtype, device=where)
        symmetric.rendezvous(shared, nccl.group_name)
        calls |= calls_of_torch(name, shared.zero_(), nccl.group_name)
    in_a_row = calls_in_a_row(size)
    return timer.in_graphs(calls, in_a_row) if way == "graph" else timer.eager(calls, in_a_row)


def text_of(times: dict[str, float]) -> str:
    torchs = [time for name, time in times.items() if name.endswith("-shot")]
    cells = [f"{times[name]:10.1f}" if name in times else f"{'':>10}" for name in COLUMNS]
    ratios = f"{times['mccl'] / times['nccl']:8.2f}"
    return "".join(cells) + ratios + (f"{times['mccl'] / min(torchs):8.2f}" if torchs else "")


COLUMNS = ("mccl", "nccl", "one-shot", "two-shot")


def main() -> None:
    import mccl

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", default=",".join(CALLS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--ways", default="graph,eager")
    parser.add_argument("--sizes", help="such as 64K,1M,8M")
    parser.add_argument("--backend", default="cuda", help="MCCL_BACKEND, see docs/gpus.md")
    given = parser.parse_args()
    sizes = [bytes_of(size) for size in given.sizes.split(",")] if given.sizes else SIZES
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mccl.init(backend=given.backend)
    dist.init_process_group("mccl")
    timer = Timer(dist.new_group(backend="gloo"))
    nccl = dist.new_group(backend="nccl")
    first = dist.get_rank() == 0
    if first:
        print(
            f"torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, "
            f"{dist.get_world_size()} x {torch.cuda.get_device_name()}"
        )
    for way in given.ways.split(","):
        for dtype in given.dtypes.split(","):
            for name in given.calls.split(","):
                if first:
                    heads = "".join(f"{column:>10}" for column in COLUMNS)
                    print(f"{name} of {dtype}, {way}\n{'bytes':>12}{heads}   /nccl  /torch")
                for size in sizes:
                    times = row(name, size, DTYPES[dtype], way, timer, nccl)
                    if first:
                        print(f"{size:12d}{text_of(times)}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
