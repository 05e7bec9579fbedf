"""One step of DDP; each rank prints the digest of all its parameters."""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("mccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)  # DDP gives all ranks the parameters of the first
model = DistributedDataParallel(torch.nn.Linear(24, 16))
before = [parameter.detach().clone() for parameter in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(8, 24)).square().mean().backward()
optimizer.step()
assert not any(map(torch.equal, before, model.parameters()))
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
sys.stdout.write(f"rank {rank} of {size}: {digest.hexdigest()}\n")  # a line is one write
dist.destroy_process_group()
