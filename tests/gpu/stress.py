"""Random calls of the `cuda` kernels with random delays, whose results are compared bit by bit.

    torchrun --nproc_per_node=2 --standalone tests/gpu/stress.py [calls] [seed] [pooled]

The kernels order their accesses by flags in global memory, which no race checker follows. Random
delays on the host and in the stream make ranks arrive early or late. Every rank computes the inputs
of all ranks and therefore knows each result. Sentinels around each result detect writes beyond its
ends. Ranks share GPUs if there are fewer GPUs than ranks.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

SUMS = ("all_reduce", "reduce_scatter")
MOVES = ("all_gather", "all_to_all", "broadcast")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MOST_BYTES = 24 << 20  #: per call; needs more than one round of the staging area for two ranks
GUARD = 64  #: bytes of sentinels on each side of a result
SENTINEL = 0xA5
CALLS_AT_ONCE = 16  #: calls between two checks of the results


@dataclass
class Call:
    """One call, the same on all ranks."""

    number: int
    kind: str
    dtype: torch.dtype
    count: int  #: elements of one rank's input, or of one part if the input has several
    average: bool
    root: int
    seed: int

    @classmethod
    def drawn(cls, number: int, chance: random.Random, size: int) -> Call:
        kind = chance.choice(SUMS + MOVES)
        dtype = chance.choice(DTYPES)
        most = MOST_BYTES // dtype.itemsize // (1 if kind in ("all_reduce", "broadcast") else size)
        count = int(math.exp(chance.uniform(0, math.log(most))))
        return cls(
            number,
            kind,
            dtype,
            count,
            kind in SUMS and chance.random() < 0.5,
            chance.randrange(size),
            chance.randrange(1 << 40),
        )

    def input_of(self, rank: int, size: int, where: torch.device) -> torch.Tensor:
        parts = size if self.kind in ("reduce_scatter", "all_to_all") else 1
        generator = torch.Generator(device=where).manual_seed(self.seed + rank)
        whole = torch.randn(parts * self.count, generator=generator, device=where)
        return whole.to(self.dtype)

    def expected(self, rank: int, size: int, where: torch.device) -> torch.Tensor:
        every = [self.input_of(peer, size, where) for peer in range(size)]
        if self.kind == "broadcast":
            return every[self.root]
        if self.kind == "all_gather":
            return torch.cat(every)
        mine = slice(rank * self.count, (rank + 1) * self.count)
        if self.kind == "all_to_all":
            return torch.cat([one[mine] for one in every])
        if self.kind == "reduce_scatter":
            every = [one[mine] for one in every]
        total = every[0].float()
        for one in every[1:]:
            total = total + one.float()
        if self.average:  # torch multiplies by the reciprocal if the divisor is a number
            total = total / torch.full_like(total, size)
        return total.to(self.dtype)


class Memory:
    """Memory for the tensors of calls, at varying alignments and partly in a pool if given."""

    def __init__(self, where: torch.device, chance: random.Random, pool: torch.Tensor | None):
        self.where, self.chance, self.pool = where, chance, pool
        self.used = 0

    def take(self, count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a tensor, and the bytes of it and of the sentinels around it."""
        offset = self.chance.choice((0, 0, 0, 1, 8)) * dtype.itemsize
        length = count * dtype.itemsize
        whole = 2 * GUARD + offset + length
        space = None
        if self.pool is not None and self.chance.random() < 0.7:
            if self.used + whole > self.pool.numel():
                self.used = 0
            space = self.pool[self.used : self.used + whole]
            self.used += (whole + 255) // 256 * 256
        if space is None:
            space = torch.empty(whole, dtype=torch.uint8, device=self.where)
        space.fill_(SENTINEL)
        begin = GUARD + offset
        return space[begin : begin + length].view(dtype), space


def wrong_bytes(space: torch.Tensor, result: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Returns the number of wrong bytes in the result and the sentinels. It stays on the GPU."""
    begin = result.data_ptr() - space.data_ptr()
    end = begin + result.numel() * result.element_size()
    wrong = (space[begin:end] != expected.view(torch.uint8)).sum()
    return wrong + (space[:begin] != SENTINEL).sum() + (space[end:] != SENTINEL).sum()


def make(call: Call, memory: Memory, rank: int, size: int, waits: bool) -> torch.Tensor:
    """Makes one call and returns the number of wrong bytes, as a tensor on the GPU."""
    given = call.input_of(rank, size, memory.where)
    op = dist.ReduceOp.AVG if call.average else dist.ReduceOp.SUM
    expected = call.expected(rank, size, memory.where)
    result, space = memory.take(expected.numel(), call.dtype)
    if call.kind in ("all_reduce", "broadcast"):
        result.copy_(given)
        source = result
    else:
        source, _ = memory.take(given.numel(), call.dtype)
        source.copy_(given)
    if memory.chance.random() < 0.3:
        torch.cuda._sleep(memory.chance.randrange(2_000_000))  # at most about a millisecond
    if memory.chance.random() < 0.3:
        time.sleep(memory.chance.random() * 3e-3)
    if call.kind == "all_reduce":
        work = dist.all_reduce(result, op=op, async_op=not waits)
    elif call.kind == "reduce_scatter":
        work = dist.reduce_scatter_tensor(result, source, op=op, async_op=not waits)
    elif call.kind == "all_gather":
        work = dist.all_gather_into_tensor(result, source, async_op=not waits)
    elif call.kind == "all_to_all":
        work = dist.all_to_all_single(result, source, async_op=not waits)
    else:
        work = dist.broadcast(result, call.root, async_op=not waits)
    if work is not None:
        work.wait()
    return wrong_bytes(space, result, expected)


def require_kernels(where: torch.device) -> None:
    """Fails where a call goes through the host, which refuses to be captured in a graph."""
    size = dist.get_world_size()
    part, whole = torch.ones(8, device=where), torch.ones(8 * size, device=where)
    moved = torch.zeros_like(whole)

    def calls() -> None:
        dist.all_reduce(part)
        dist.all_gather_into_tensor(whole, part)
        dist.all_to_all_single(moved, whole)
        dist.reduce_scatter_tensor(part, moved)
        dist.broadcast(part, 0)

    calls()
    torch.cuda.synchronize()
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        return  # torch cannot capture without its caching allocator
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    graph.replay()
    torch.cuda.synchronize()
    assert part.eq(size**4).all(), part


def check(calls: int, seed: int, pooled: bool) -> None:
    """Makes and checks random calls. Runs on every rank of a group that uses the kernels."""
    rank, size = dist.get_rank(), dist.get_world_size()
    where = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(where)
    require_kernels(where)
    shared, own = random.Random(seed), random.Random(seed * 1000 + rank)
    memory_of_pool = None
    if pooled:
        backend = dist.group.WORLD._get_backend(where)
        pool = torch.cuda.MemPool(backend.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            memory_of_pool = torch.empty(4 * MOST_BYTES, dtype=torch.uint8, device=where)
        backend.register_mem_pool(pool)
    memory = Memory(where, own, memory_of_pool)
    open_calls: list[tuple[Call, torch.Tensor]] = []
    for number in range(calls):
        call = Call.drawn(number, shared, size)
        open_calls.append((call, make(call, memory, rank, size, own.random() < 0.5)))
        if len(open_calls) == CALLS_AT_ONCE or number == calls - 1:
            for made, wrong in open_calls:
                assert int(wrong) == 0, (
                    f"{int(wrong)} wrong bytes on rank {rank}, seed {seed}: {made}"
                )
            open_calls.clear()


def main() -> None:
    import mccl

    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    size = int(os.environ["WORLD_SIZE"])
    shares = torch.cuda.device_count() < size
    mccl.init(backend="cuda", **({"test_only_shared_gpu": "nvlink"} if shares else {}))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("mccl", timeout=timedelta(seconds=300))
    check(calls, seed, "pooled" in sys.argv[3:])
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"ok    {calls} calls of {size} ranks, seed {seed}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
