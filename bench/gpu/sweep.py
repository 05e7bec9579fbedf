"""Measures every bf16 all_reduce kernel with every grid at every size, beside NCCL and torch.

    torchrun --nproc_per_node=2 --standalone bench/gpu/sweep.py [--csv FILE] [--sizes 64K,1M]
        [--kernels all_reduce,pooled]

Prints a table with each kernel's best grid per size, and the fastest of all. Then it prints the
limits that follow for src/backend/cuda/launch.h. The sum of each variant is checked first. Times
are microseconds per call on the slowest rank, medians of CUDA graphs of many calls in a row.
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

sys.path.insert(0, str(Path(__file__).parent))
from timing import KIB, MIB, Timer, bytes_of, calls_in_a_row

from kernels import Kernels, Variant

SIZES = [KIB, 8 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB]
SIZES += [4 * MIB, 8 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 512 * MIB]
KERNELS = ["flagged_sum", "packed_sum", "flagged_parts", "packed_parts", "all_reduce"]
#: Includes kernels on memory that all ranks access, like torch's.
KERNELS += ["pooled_all_reduce"]
#: The most threads whose blocks all fit on a GPU at once, given the kernels' registers.
MOST_THREADS = 132 * 512
REPLAYS = 9


def variants(size: int, ranks: int, kernels: list[str]) -> list[Variant]:
    """Returns grids in which every block has work, each about twice as large as the one before."""
    found = []
    for kernel in kernels:
        part = size // ranks if kernel.endswith(("parts", "all_reduce")) else size
        lines = max(1, part // 16)
        for threads in (64, 128, 256, 512):
            for blocks in (1, 4, 8, 16, 32, 64, 96, 128, 192, 256):
                if blocks * threads > MOST_THREADS:
                    continue
                useful = blocks == 1 or blocks * threads < 8 * lines
                enough = blocks * threads * 64 >= lines or blocks >= 64
                if useful and enough:
                    found.append(Variant(kernel, blocks, threads))
    return [variant for variant in found if variant.has_room(size, ranks)]


def check(kernels: Kernels, size: int, nccl: dist.ProcessGroup, names: list[str]) -> list[Variant]:
    """Returns the variants whose sums are right several times in a row, and prints the others."""
    where = torch.device("cuda", torch.cuda.current_device())
    generator = torch.Generator(device=where).manual_seed(kernels.rank)
    given, taken = kernels.memory(size)
    given.copy_(torch.randint(-8, 8, (size // 2,), generator=generator, device=where))
    expected = given.clone()
    dist.all_reduce(expected, group=nccl)
    right = []
    for variant in variants(size, kernels.ranks, names):
        wrong = torch.zeros((), dtype=torch.int64, device=where)
        for _ in range(4):
            taken.fill_(-100)
            kernels.all_reduce(variant, given, taken)
            wrong += (taken != expected).sum()
        dist.all_reduce(wrong, group=nccl)
        kernels.require_quiet()
        if int(wrong) == 0:
            right.append(variant)
        elif kernels.rank == 0:
            print(f"WRONG: {variant} of {size} bytes: {int(wrong)} elements", flush=True)
    return right


def others(size: int, nccl: dist.ProcessGroup, timer: Timer) -> dict[str, float]:
    where = torch.device("cuda", torch.cuda.current_device())
    calls = calls_in_a_row(size)
    data = torch.zeros(size // 2, device=where, dtype=torch.bfloat16)
    found = {"nccl": timer.in_graph(functools.partial(dist.all_reduce, data, group=nccl), calls)}
    shared = symmetric.empty(size // 2, dtype=torch.bfloat16, device=where)
    symmetric.rendezvous(shared, nccl.group_name)
    shared.zero_()
    for label, name in (("one-shot", "one_shot_all_reduce"), ("two-shot", "two_shot_all_reduce_")):
        call = getattr(torch.ops.symm_mem, name)
        found[label] = timer.in_graph(
            functools.partial(call, shared, "sum", nccl.group_name), calls
        )
    return found


def row_of(
    size: int, kernels: Kernels, nccl: dist.ProcessGroup, timer: Timer, names: list[str]
) -> tuple[dict[str, float], dict[Variant, float]]:
    ours = {}
    right = check(kernels, size, nccl, names)
    data = kernels.memory(size)[0].zero_()
    for variant in right:
        call = functools.partial(kernels.all_reduce, variant, data, data, mean=True)
        ours[variant] = timer.in_graph(call, calls_in_a_row(size))
    kernels.require_quiet()
    return others(size, nccl, timer), ours


def best_of(ours: dict[Variant, float]) -> dict[str, Variant]:
    best: dict[str, Variant] = {}
    for variant, time in ours.items():
        if variant.kernel not in best or time < ours[best[variant.kernel]]:
            best[variant.kernel] = variant
    return best


def limits(winners: dict[int, str], ranks: int) -> str:
    """Formats the largest size at which each kernel is fastest, as launch.h expects it."""
    last = {
        kernel: max([s for s, k in winners.items() if k == kernel], default=0) for kernel in KERNELS
    }
    return (
        f"Limits{{.flagged_to_all = {last['flagged_sum'] * (ranks - 1)}, "
        f".packed_to_all = {last['packed_sum'] * (ranks - 1)}, "
        f".flagged_part = {last['flagged_parts'] // ranks}, "
        f".packed_part = {last['packed_parts'] // ranks}}}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=Path, help="write every variant, one per line")
    parser.add_argument("--sizes", help="such as 64K,1M,8M")
    parser.add_argument("--kernels", help="prefixes such as all_reduce,pooled")
    parser.add_argument("--image", type=Path, help="compiled kernels")
    arguments = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    nccl, host = dist.group.WORLD, dist.new_group(backend="gloo")
    kernels, timer = Kernels(nccl, arguments.image), Timer(host, REPLAYS)
    wanted = tuple(arguments.kernels.split(",")) if arguments.kernels else ("",)
    names = [name for name in KERNELS if name.startswith(wanted)]
    sizes = [bytes_of(s) for s in arguments.sizes.split(",")] if arguments.sizes else SIZES
    if kernels.rank == 0:
        columns = ["nccl", "one-shot", "two-shot", *names]
        print(torch.cuda.get_device_name(), torch.cuda.nccl.version(), torch.__version__)
        print(f"{'bytes':>10}" + "".join(f"{name:>18}" for name in columns) + "   fastest")
    lines: list[list[object]] = []
    winners: dict[int, str] = {}
    for size in sizes:
        theirs, ours = row_of(size, kernels, nccl, timer, names)
        best = best_of(ours)
        # Excludes pooled kernels, since a call cannot choose its kind of memory.
        plain = [variant for kernel, variant in best.items() if not kernel.startswith("pooled")]
        fastest = min(plain or best.values(), key=lambda variant: ours[variant])
        winners[size] = fastest.kernel
        lines += [[size, v.kernel, v.blocks, v.threads, f"{t:.2f}"] for v, t in ours.items()]
        if kernels.rank != 0:
            continue
        cells = [f"{time:18.1f}" for time in theirs.values()]
        cells += [f"{ours[best[k]]:18.1f}" if k in best else f"{'-':>18}" for k in names]
        torchs = min(theirs["one-shot"], theirs["two-shot"])
        print(
            f"{size:10d}" + "".join(cells) + f"   {fastest}: {ours[fastest] / theirs['nccl']:.2f} "
            f"of NCCL, {ours[fastest] / torchs:.2f} of torch",
            flush=True,
        )
    if kernels.rank == 0:
        print(limits(winners, kernels.ranks))
        if arguments.csv:
            with arguments.csv.open("w", newline="") as file:
                csv.writer(file).writerows([["bytes", "kernel", "blocks", "threads", "us"], *lines])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
