"""Times collective calls on GPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist

Acts = Mapping[str, Callable[[], object]]


KIB, MIB = 1 << 10, 1 << 20


def bytes_of(text: str) -> int:
    """Reads a size such as "512", "64K" or "8M"."""
    units = {"K": KIB, "M": MIB}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def capture(call: Callable[[], object], calls: int, before: int = 3) -> torch.cuda.CUDAGraph:
    """Returns a graph of `calls` calls in a row. Before, makes some calls outside the graph."""
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
    """Measures the median times of the slowest rank. `host` is a group on host memory.

    Several functions (`acts`) take turns, so that changes of the machine's speed affect all.
    """

    def __init__(self, host: dist.ProcessGroup, repeats: int = 15) -> None:
        self.host = host
        self.repeats = repeats

    def in_graph(self, call: Callable[[], object], calls: int) -> float:
        """Returns the microseconds per call in a graph of `calls` calls."""
        return self.in_graphs({"": call}, calls)[""]

    def in_graphs(self, acts: Acts, calls: int) -> dict[str, float]:
        """Returns the result of in_graph() for several functions, each in its own graph."""
        graphs = {name: capture(act, calls).replay for name, act in acts.items()}
        return {name: time / calls for name, time in self.on_gpu(graphs).items()}

    def eager(self, acts: Acts, calls: int) -> dict[str, float]:
        """Returns the microseconds per call of each function, for calls enqueued one by one."""

        def row(act: Callable[[], object]) -> None:
            for _ in range(calls):
                act()

        rows = {name: functools.partial(row, act) for name, act in acts.items()}
        for each in rows.values():
            each()
        return {name: time / calls for name, time in self.on_gpu(rows).items()}

    def on_gpu(self, acts: Acts) -> dict[str, float]:
        """Returns the microseconds that each function takes on the GPU."""
        times: dict[str, list[float]] = {name: [] for name in acts}
        for _ in range(self.repeats):
            for name, act in acts.items():
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize()
                dist.barrier(self.host)
                begin.record()
                act()
                end.record()
                end.synchronize()
                times[name].append(begin.elapsed_time(end) * 1000)
        slowest = torch.tensor([median(each) for each in times.values()])
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=self.host)
        return dict(zip(times, slowest.tolist(), strict=True))


def calls_in_a_row(size: int) -> int:
    """Returns a number of calls per graph that makes the graph's launch time negligible."""
    return 50 if size <= 8 << 20 else 5
