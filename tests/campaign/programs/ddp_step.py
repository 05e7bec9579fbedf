"""One training step with DDP. Each rank prints the digest of all parameters."""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("mccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)  # DDP replaces all parameters by those of rank 0
model = DistributedDataParallel(torch.nn.Linear(24, 16))
before = [parameter.detach().clone() for parameter in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(8, 24)).square().mean().backward()
optimizer.step()
assert not any(map(torch.equal, before, model.parameters()))
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
sys.stdout.write(f"rank {rank} of {size}: {digest.hexdigest()}\n")  # one write keeps the line whole
dist.destroy_process_group()
