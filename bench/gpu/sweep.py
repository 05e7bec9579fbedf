"""Measures every bf16 kernel of a call with every grid at every size, beside NCCL and torch.

    torchrun --nproc_per_node=2 --standalone bench/gpu/sweep.py [--calls all_reduce,broadcast]
        [--csv FILE] [--sizes 64K,1M] [--kernels all_reduce,pooled]

Prints a table per call with each kernel's best grid per size, and the fastest of all. Then it
prints, for each kernel, the largest size at which it is the fastest, from which the limits in
src/backend/cuda/launch.cpp follow. A size is that of the longer buffer. The result of each variant
is checked first. Times are microseconds per call on the slowest rank, medians of CUDA graphs of
many calls in a row.
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

sys.path.insert(0, str(Path(__file__).parent))
from timing import KIB, MIB, Timer, bytes_of, calls_in_a_row

from kernels import Kernels, Variant

SIZES = [KIB, 8 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB]
SIZES += [4 * MIB, 8 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 512 * MIB]
#: The kernels of each call. Pooled kernels read memory that all ranks access.
CALLS = {
    "all_reduce": ["flagged_sum", "packed_sum", "flagged_parts", "packed_parts", "all_reduce"],
    "all_gather": ["flagged_gather", "all_gather", "pooled_all_gather"],
    "reduce_scatter": ["flagged_scatter", "reduce_scatter", "pooled_reduce_scatter"],
    "all_to_all": ["all_to_all"],
    "broadcast": ["flagged_broadcast", "broadcast"],
}
#: Maximum number of threads whose blocks all run on a GPU at once, given the kernels' registers.
MOST_THREADS = 132 * 512
REPLAYS = 9


class Sweep:
    """Measures the kernels of one call. All ranks take part."""

    def __init__(self, call: str, kernels: Kernels, nccl: dist.ProcessGroup) -> None:
        self.call, self.kernels, self.nccl = call, kernels, nccl
        self.where = torch.device("cuda", torch.cuda.current_device())
        self.root = kernels.ranks - 1 if call == "broadcast" else -1

    def part(self, size: int) -> int:
        """Returns the bytes of one part, for a buffer with one part per rank."""
        return size // self.kernels.ranks // 16 * 16

    def buffers(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the input and the output, in memory that all ranks can access."""
        given, taken = self.kernels.memory(size)
        own = self.part(size) // 2
        return {
            "all_gather": (given[:own], taken[: own * self.kernels.ranks]),
            "reduce_scatter": (given[: own * self.kernels.ranks], taken[:own]),
            "all_to_all": (given[: own * self.kernels.ranks], taken[: own * self.kernels.ranks]),
        }.get(self.call, (given, taken))

    def task_bytes(self, size: int) -> int:
        """Returns the value of KernelArguments.bytes in src/kernels/cuda/fabric.h."""
        return size if self.call in ("all_reduce", "broadcast") else self.part(size)

    def run(self, variant: Variant, given: torch.Tensor, taken: torch.Tensor, size: int) -> None:
        """Launches the kernel. Computes means, because repeated sums would overflow."""
        self.kernels.launch(variant, given, taken, self.task_bytes(size), root=self.root, mean=True)

    def of_nccl(self, given: torch.Tensor, taken: torch.Tensor) -> Callable[[], object]:
        """Returns the same call of NCCL. all_reduce and broadcast work in place on `taken`."""
        mean = dist.ReduceOp.AVG
        if self.call == "all_reduce":
            return functools.partial(dist.all_reduce, taken, op=mean, group=self.nccl)
        if self.call == "all_gather":
            return functools.partial(dist.all_gather_into_tensor, taken, given, group=self.nccl)
        if self.call == "reduce_scatter":
            return functools.partial(
                dist.reduce_scatter_tensor, taken, given, op=mean, group=self.nccl
            )
        if self.call == "all_to_all":
            return functools.partial(dist.all_to_all_single, taken, given, group=self.nccl)
        return functools.partial(dist.broadcast, taken, src=self.root, group=self.nccl)

    def variants(self, size: int, names: list[str]) -> list[Variant]:
        """Returns grids in which every block has work, each about twice the previous size."""
        found = []
        whole = self.call == "broadcast"
        for kernel in names:
            parted = not whole and not kernel.endswith("_sum")
            lines = max(1, (size // self.kernels.ranks if parted else size) // 16)
            for threads in (64, 128, 256, 512):
                for blocks in (1, 4, 8, 16, 32, 64, 96, 128, 192, 256):
                    if blocks * threads > MOST_THREADS:
                        continue
                    useful = blocks == 1 or blocks * threads < 8 * lines
                    enough = blocks * threads * 64 >= lines or blocks >= 32
                    if useful and enough:
                        found.append(Variant(kernel, blocks, threads))
        return [variant for variant in found if variant.has_room(size, self.kernels.ranks)]

    def right_variants(self, size: int, names: list[str]) -> list[Variant]:
        """Returns the variants whose results are right four times in a row. Prints the others."""
        kernels = self.kernels
        generator = torch.Generator(device=self.where).manual_seed(kernels.rank)
        given, taken = self.buffers(size)
        # Multiples of the number of ranks have exact means if that number is a power of two.
        numbers = torch.randint(-8, 8, (given.numel(),), generator=generator, device=self.where)
        given.copy_(numbers * kernels.ranks)
        expected = torch.empty_like(taken)
        if self.call in ("all_reduce", "broadcast"):
            expected.copy_(given)
        self.of_nccl(given, expected)()
        right = []
        for variant in self.variants(size, names):
            wrong = torch.zeros((), dtype=torch.int64, device=self.where)
            for _ in range(4):
                taken.fill_(-100)
                if self.call == "broadcast" and kernels.rank == self.root:
                    taken.copy_(given)
                source = taken if self.call == "broadcast" else given
                self.run(variant, source, taken, size)
                wrong += (taken != expected).sum()
            dist.all_reduce(wrong, group=self.nccl)
            kernels.require_quiet()
            if int(wrong) == 0:
                right.append(variant)
            elif kernels.rank == 0:
                print(f"WRONG: {variant} of {size} bytes: {int(wrong)} elements", flush=True)
        return right

    def others(self, size: int, timer: Timer) -> dict[str, float]:
        """Returns the times of NCCL and of torch's kernels."""
        calls = calls_in_a_row(size)
        given, taken = (torch.zeros_like(buffer) for buffer in self.buffers(size))
        found = {"nccl": timer.in_graph(self.of_nccl(given, taken), calls)}
        if self.call != "all_reduce":
            return found
        shared = symmetric.empty(size // 2, dtype=torch.bfloat16, device=self.where)
        symmetric.rendezvous(shared, self.nccl.group_name)
        shared.zero_()
        for label, name in (
            ("one-shot", "one_shot_all_reduce"),
            ("two-shot", "two_shot_all_reduce_"),
        ):
            act = functools.partial(
                getattr(torch.ops.symm_mem, name), shared, "sum", self.nccl.group_name
            )
            found[label] = timer.in_graph(act, calls)
        return found

    def times(self, size: int, timer: Timer, names: list[str]) -> dict[Variant, float]:
        """Returns the times of all variants whose results are right."""
        right = self.right_variants(size, names)
        given, taken = (buffer.zero_() for buffer in self.buffers(size))
        if self.call == "broadcast":
            given = taken
        found = {
            variant: timer.in_graph(
                functools.partial(self.run, variant, given, taken, size), calls_in_a_row(size)
            )
            for variant in right
        }
        self.kernels.require_quiet()
        return found


def best_of(times: dict[Variant, float]) -> dict[str, Variant]:
    best: dict[str, Variant] = {}
    for variant, time in times.items():
        if variant.kernel not in best or time < times[best[variant.kernel]]:
            best[variant.kernel] = variant
    return best


def sweep_call(sweep: Sweep, sizes: list[int], timer: Timer, names: list[str]) -> list[list]:
    """Measures and prints one call. Returns a line for each variant."""
    first = sweep.kernels.rank == 0
    lines: list[list] = []
    winners: dict[str, int] = {}
    for size in sizes:
        theirs, ours = sweep.others(size, timer), sweep.times(size, timer, names)
        if first and size == sizes[0]:
            print(sweep.call)
            print(f"{'bytes':>10}" + "".join(f"{name:>18}" for name in [*theirs, *names]))
        best = best_of(ours)
        lines += [[sweep.call, size, v.kernel, v.blocks, v.threads, f"{ours[v]:.2f}"] for v in ours]
        # Excludes pooled kernels, because they depend on the memory that the caller passes.
        plain = [variant for kernel, variant in best.items() if not kernel.startswith("pooled")]
        if not first or not best:
            continue
        fastest = min(plain or best.values(), key=lambda variant: ours[variant])
        winners[fastest.kernel] = size
        cells = [f"{time:18.1f}" for time in theirs.values()]
        cells += [f"{ours[best[k]]:18.1f}" if k in best else f"{'-':>18}" for k in names]
        torchs = min([time for name, time in theirs.items() if name != "nccl"], default=0.0)
        beside = f", {ours[fastest] / torchs:.2f} of torch" if torchs else ""
        print(
            f"{size:10d}" + "".join(cells) + f"   {fastest}: {ours[fastest] / theirs['nccl']:.2f} "
            f"of NCCL{beside}",
            flush=True,
        )
    if first:
        print("fastest up to: " + ", ".join(f"{k} {size}" for k, size in winners.items()))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", default=",".join(CALLS))
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
    sizes = [bytes_of(s) for s in arguments.sizes.split(",")] if arguments.sizes else SIZES
    if kernels.rank == 0:
        print(torch.cuda.get_device_name(), torch.cuda.nccl.version(), torch.__version__)
    lines = [["call", "bytes", "kernel", "blocks", "threads", "us"]]
    for call in arguments.calls.split(","):
        names = [name for name in CALLS[call] if name.startswith(wanted)]
        lines += sweep_call(Sweep(call, kernels, nccl), sizes, timer, names)
    if kernels.rank == 0 and arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
