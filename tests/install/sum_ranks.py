"""Adds an array over the ranks of a job with the framework that the first argument names."""

import importlib.metadata
import sys


def with_torch() -> tuple[int, int, list[float]]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("mccl")
    tensor = torch.full((3,), float(dist.get_rank() + 1))
    dist.all_reduce(tensor)
    found = dist.get_rank(), dist.get_world_size(), tensor.tolist()
    dist.destroy_process_group()
    return found


def with_numpy() -> tuple[int, int, list[float]]:
    import numpy as np

    import mccl.distributed as dist

    world = dist.init()
    return world.rank, world.size, world.all_reduce(np.full(3, world.rank + 1.0)).tolist()


def with_mlx() -> tuple[int, int, list[float]]:
    import mlx.core as mx

    import mccl.mlx

    world = mccl.mlx.init()
    total = mccl.mlx.all_sum(mx.full((3,), world.rank() + 1.0), group=world)
    return world.rank(), world.size(), total.tolist()


name = sys.argv[1]
rank, size, total = globals()[f"with_{name}"]()
print(f"{name} {importlib.metadata.version(name)}: rank {rank} of {size}: {total}")
