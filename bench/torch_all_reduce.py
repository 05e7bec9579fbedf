"""Measures all_reduce of two torch.distributed backends side by side.

    python bench/torch_all_reduce.py --json result.json

The same processes hold a group of each backend and take turns, a round of one and then a round of
the other, so that whatever else the machine does hits both. A call is timed on every rank from
before `all_reduce` to after it returned; its time is that of the slowest rank. `ratio` is the
median of the second backend over that of the first: above 1, the first is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backends", nargs=2, default=["mccl", "gloo"], metavar="NAME")
    parser.add_argument("--ranks", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--min-bytes", type=int, default=8, help="smallest tensor (default 8)")
    parser.add_argument(
        "--max-bytes", type=int, default=64 << 20, help="largest tensor (default 64 MiB)"
    )
    parser.add_argument("--factor", type=int, default=8, help="from size to size (default 8)")
    parser.add_argument("--rounds", type=int, default=10, help="turns per backend (default 10)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.1,
        help="length that a round aims at (default 0.1); it holds 3 to 200 calls",
    )
    parser.add_argument(
        "--transport", default="tcp", help="MCCL_TRANSPORT unless that is set (default tcp)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    return parser.parse_args()


def sizes_of(arguments: argparse.Namespace) -> list[int]:
    """Bytes of each tensor: from the smallest up by the factor, and the largest."""
    sizes = []
    size = arguments.min_bytes
    while size < arguments.max_bytes:
        sizes.append(size)
        size *= arguments.factor
    return [*sizes, arguments.max_bytes]


def timed_calls(group: dist.ProcessGroup, tensor: torch.Tensor, calls: int) -> list[float]:
    """Seconds of each of `calls` all_reduces."""
    seconds = []
    for _ in range(calls):
        begin = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        seconds.append(time.perf_counter() - begin)
    return seconds


def measure(
    groups: dict[str, dist.ProcessGroup], elements: int, arguments: argparse.Namespace
) -> dict[str, list[float]]:
    """Seconds of every call of every backend on this rank, the backends taking turns."""
    # Zeros stay zeros: no call's operands depend on how many came before.
    tensor = torch.zeros(elements)
    pace = max(min(timed_calls(group, tensor, 3)) for group in groups.values())
    calls = torch.tensor(max(3, min(200, int(arguments.seconds / pace))))
    dist.broadcast(calls, src=0)
    samples: dict[str, list[float]] = {name: [] for name in groups}
    for turn in range(arguments.rounds):
        order = list(groups) if turn % 2 == 0 else list(reversed(groups))
        for name in order:
            timed_calls(groups[name], tensor, 1)
            samples[name] += timed_calls(groups[name], tensor, int(calls))
    return samples


def slowest(seconds: list[float]) -> list[float]:
    """Of each call, the time on the slowest rank."""
    values = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return values.tolist()


def summarise(samples: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Median and 99th percentile in microseconds."""
    return {
        name: {
            "median_us": statistics.median(values) * 1e6,
            "p99_us": sorted(values)[min(len(values) - 1, int(len(values) * 0.99))] * 1e6,
            "calls": len(values),
        }
        for name, values in samples.items()
    }


def row_of(size: int, result: dict[str, dict[str, float]], names: list[str], ranks: int) -> str:
    """One line of the table. Bus bandwidth counts what each link has to carry: 2 (n-1)/n."""
    first, second = (result[name] for name in names)
    bus = size * 2 * (ranks - 1) / ranks / (first["median_us"] * 1e-6) / 1e9
    return (
        f"{size:>10} {first['median_us']:>12.1f} {first['p99_us']:>12.1f} {bus:>9.2f} "
        f"{second['median_us']:>12.1f} {second['p99_us']:>12.1f} "
        f"{second['median_us'] / first['median_us']:>7.2f}"
    )


def run_rank(rank: int, port: int, arguments: argparse.Namespace) -> None:
    """What each process does."""
    os.environ.setdefault("MCCL_TRANSPORT", arguments.transport)
    torch.set_num_threads(1)
    names = arguments.backends
    if "mccl" in names:
        import mccl  # noqa: F401  (registers the backend)
    # The default group serves the bookkeeping; the two that are measured are groups beside it.
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=arguments.ranks
    )
    groups = {name: dist.new_group(backend=name) for name in names}

    if rank == 0:
        print(f"all_reduce of float32, {arguments.ranks} ranks on this machine, microseconds")
        print(
            f"{'bytes':>10} {names[0] + ' p50':>12} {'p99':>12} {'bus GB/s':>9} "
            f"{names[1] + ' p50':>12} {'p99':>12} {'ratio':>7}",
            flush=True,
        )
    rows: list[dict[str, Any]] = []
    for size in sizes_of(arguments):
        samples = measure(groups, size // 4, arguments)
        result = summarise({name: slowest(values) for name, values in samples.items()})
        rows.append({"bytes": size, **result})
        if rank == 0:
            print(row_of(size, result, names, arguments.ranks), flush=True)
    if rank == 0 and arguments.json is not None:
        about = {
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "torch": torch.__version__,
            "ranks": arguments.ranks,
            "transport": os.environ["MCCL_TRANSPORT"],
            "rows": rows,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(about, indent=1) + "\n")
        print(f"wrote {arguments.json}")
    dist.destroy_process_group()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> int:
    """Starts the processes."""
    arguments = parse_arguments()
    if arguments.min_bytes < 4 or arguments.factor < 2:
        sys.exit("--min-bytes must be at least 4 and --factor at least 2")
    multiprocessing.spawn(run_rank, args=(free_port(), arguments), nprocs=arguments.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
