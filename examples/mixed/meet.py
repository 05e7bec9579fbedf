"""Ranks of different frameworks in one job: a sum, a broadcast and a gather.

    mccl launch -n 3 examples/mixed/meet.py
    mccl launch -n 4 examples/mixed/meet.py --frameworks torch,mlx,numpy,cpp --cpp build/mixed/meet

Rank r uses the r-th framework. The ranks sum [1, 2, 3, 4] * (rank + 1), receive the values that
rank 0 broadcasts, and gather the numbers of all ranks. All ranks print the same results.
"""

from __future__ import annotations

import argparse
import os

RAMP = [1.0, 2.0, 3.0, 4.0]


def as_torch() -> tuple[int, list[float], list[float], list[float]]:
    """Returns rank, sum, broadcast and gather, computed with torch."""
    import torch
    import torch.distributed as dist

    import mccl  # noqa: F401  (registers the backend)

    dist.init_process_group("mccl", init_method="mccl://")
    rank = dist.get_rank()
    total = torch.tensor(RAMP) * (rank + 1)
    dist.all_reduce(total)
    sent = torch.full((4,), float(rank + 7))
    dist.broadcast(sent, src=0)
    ranks = torch.empty(dist.get_world_size())
    dist.all_gather_into_tensor(ranks, torch.tensor([float(rank)]))
    dist.barrier()
    dist.destroy_process_group()
    return rank, total.tolist(), sent.tolist(), ranks.tolist()


def as_mlx() -> tuple[int, list[float], list[float], list[float]]:
    """Computes the results of as_torch() with MLX."""
    import mlx.core as mx

    import mccl.mlx

    world = mccl.mlx.init(strict=True)
    rank = world.rank()
    total = mx.distributed.all_sum(mx.array(RAMP) * (rank + 1), group=world)
    mx.eval(total)  # MLX makes calls in the order of evaluation.
    sent = mccl.mlx.broadcast(mx.full((4,), float(rank + 7)), root=0, group=world)
    mx.eval(sent)
    ranks = mx.distributed.all_gather(mx.array([float(rank)]), group=world)
    mx.eval(ranks)
    mccl.mlx.barrier(world)
    return rank, total.tolist(), sent.tolist(), ranks.tolist()


def as_numpy() -> tuple[int, list[float], list[float], list[float]]:
    """Computes the results of as_torch() with NumPy."""
    import numpy as np

    import mccl.distributed as dist

    world = dist.init()
    total = world.all_reduce(np.array(RAMP, np.float32) * (world.rank + 1))
    sent = world.broadcast(np.full(4, world.rank + 7, np.float32), root=0)
    ranks = world.all_gather(np.array([world.rank], np.float32))
    world.barrier()
    return world.rank, total.tolist(), sent.tolist(), ranks.tolist()


FRAMEWORKS = {"torch": as_torch, "mlx": as_mlx, "numpy": as_numpy}


def main() -> None:
    """Runs this rank's part of the job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--frameworks", default="torch,mlx,numpy", help="for ranks 0, 1, …: torch, mlx, numpy, cpp"
    )
    parser.add_argument("--cpp", help="program built from examples/mixed/meet.cpp, for cpp")
    arguments = parser.parse_args()
    names = arguments.frameworks.split(",")
    for name in names:
        if name not in (*FRAMEWORKS, "cpp"):
            parser.error(f"{name!r} is not one of {', '.join((*FRAMEWORKS, 'cpp'))}")
    name = names[int(os.environ.get("MCCL_RANK", "0")) % len(names)]
    if name == "cpp":
        if arguments.cpp is None:
            parser.error("--cpp PROGRAM is missing")
        os.execv(arguments.cpp, [arguments.cpp])
    rank, total, sent, ranks = FRAMEWORKS[name]()
    print(f"rank {rank}, {name}: sum {total}, from rank 0 {sent}, ranks {ranks}", flush=True)


if __name__ == "__main__":
    main()
