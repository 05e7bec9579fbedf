"""Sums over two actors of Ray, on two nodes if the cluster has them."""

import os

import numpy as np
import ray
from ray.util import collective

import mccl


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Rank:
    """An actor that is a rank of a group."""

    def join(self, size: int, rank: int) -> None:
        """Joins the group. Each process imports mccl, which adds the backend to Ray."""
        assert mccl
        collective.init_collective_group(size, rank, backend="mccl")

    def sum(self) -> list[float]:
        """Returns the sum of an array over the group."""
        x = np.ones(3) * (collective.get_rank() + 1)
        collective.allreduce(x)
        return x.tolist()


key = {name: os.environ[name] for name in ("MCCL_JOB_KEY",) if name in os.environ}
ray.init(runtime_env={"env_vars": key})
ranks = [Rank.remote() for _ in range(2)]
ray.get([actor.join.remote(2, rank) for rank, actor in enumerate(ranks)])
print("2 ranks:", *ray.get([actor.sum.remote() for actor in ranks]))
