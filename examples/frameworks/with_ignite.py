"""Sums over two processes with Ignite, which starts the processes itself."""

import ignite.distributed as idist
import torch

import mccl  # noqa: F401


def train(local_rank: int) -> None:
    """Runs on each rank."""
    model = idist.auto_model(torch.nn.Linear(8, 1))
    total = idist.all_reduce(torch.ones(3) * (local_rank + 1))
    if idist.get_rank() == 0:
        size = idist.get_world_size()
        print(f"{size} ranks on {idist.backend()}: {total.tolist()} {type(model).__name__}")


if __name__ == "__main__":
    with idist.Parallel(backend="mccl", nproc_per_node=2) as parallel:
        parallel.run(train)
