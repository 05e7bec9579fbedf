"""torch, DDP trains the digits

The gradients travel over RDMA devices. forked_ranks.py, or a user, starts it as each rank of a job
with MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT.
"""

import gzip
import importlib.util
import os
from pathlib import Path

import torch
import torch._dynamo  # the first optimizer would import it, which takes as long as torch itself
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import mccl

STEPS = 60
BATCH = 64


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Loads scikit-learn's digits without its package, whose import takes as long as training."""
    (folder,) = importlib.util.find_spec("sklearn").submodule_search_locations
    with gzip.open(Path(folder, "datasets/data/digits.csv.gz"), "rt") as file:
        rows = torch.tensor([[float(value) for value in line.split(",")] for line in file])
    return rows[:, :-1] / 16, rows[:, -1].long()


def main() -> None:
    """Trains over RDMA, and checks that all ranks end with the same model and that it is good."""
    rank, size = int(os.environ["MCCL_RANK"]), int(os.environ["MCCL_WORLD_SIZE"])
    host, port = os.environ["MCCL_ROOT"].rsplit(":", 1)
    dist.init_process_group("mccl", init_method=f"tcp://{host}:{port}", rank=rank, world_size=size)
    torch.manual_seed(rank)
    inputs, labels = load_digits()
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(STEPS):
        chosen = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(step))
        mine = chosen[rank * BATCH : (rank + 1) * BATCH]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[mine]), labels[mine]).backward()
        optimizer.step()
    right = (model(inputs).argmax(1) == labels).float().mean().item()
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyones = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(everyones, mine)
    assert all(torch.equal(other, mine) for other in everyones), "the ranks' models differ"
    assert right > 0.85, right
    metrics = mccl.get_metrics()
    assert metrics.rdma_links > 0, metrics
    # In a ring, ranks that are not neighbours use TCP.
    assert metrics.tcp_links == 0 or os.environ["MCCL_TRANSPORT"] == "auto", metrics
    dist.destroy_process_group()
    print(f"{right:.3f} right, {metrics.rdma_links} links by rdma, {metrics.tcp_links} by tcp")


if __name__ == "__main__":
    main()
