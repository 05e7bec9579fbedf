"""Trains with DDP along cables.

The ranks connect through mccl://, because not all of them can reach a TCPStore.
"""

import hashlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import mccl  # noqa: F401  (registers the backend)

dist.init_process_group("mccl", init_method="mccl://")
torch.manual_seed(0)
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(16, 32)).square().mean().backward()
    optimizer.step()
# No cable joins some pairs of ranks in these groups.
for members in ([0, 2], [1, 3], [0, 1, 2]):
    group = dist.new_group(members)
    if dist.get_rank() in members:
        total = torch.full((50_000,), float(dist.get_rank()))
        dist.all_reduce(total, group=group)
        assert (total == sum(members)).all()
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
print("weights", digest.hexdigest())
dist.destroy_process_group()
