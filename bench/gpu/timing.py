"""Times of calls on GPUs that all ranks make together."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist


def median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def capture(call: Callable[[], object], calls: int, before: int = 3) -> torch.cuda.CUDAGraph:
    """A graph of `calls` calls in a row, on a stream of its own, after some that are not in it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(before):
            call()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(calls):
            call()
    return graph


class Timer:
    """Of all ranks the slowest one's median; `host` is a group on host memory."""

    def __init__(self, host: dist.ProcessGroup, repeats: int = 15) -> None:
        self.host = host
        self.repeats = repeats

    def in_graph(self, call: Callable[[], object], calls: int) -> float:
        """Microseconds of one of `calls` calls in a graph."""
        return self.on_gpu(capture(call, calls).replay) / calls

    def on_gpu(self, act: Callable[[], object]) -> float:
        """Microseconds between the beginning and the end of `act` on the GPU."""
        times = []
        for _ in range(self.repeats):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            dist.barrier(self.host)
            begin.record()
            act()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1000)
        slowest = torch.tensor([median(times)])
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=self.host)
        return slowest.item()


def calls_in_a_row(size: int) -> int:
    """How many calls of `size` bytes a graph is to have: enough that one launch does not count."""
    return 50 if size <= 8 << 20 else 5
