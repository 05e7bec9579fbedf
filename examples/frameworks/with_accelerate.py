"""Trains on the CPU with Accelerate: DDP, or FSDP2 under `accelerate launch --use_fsdp`."""

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch.utils.data import DataLoader, TensorDataset

import mccl  # noqa: F401

accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="mccl")])
set_seed(0)
x = torch.randn(256, 8)
data = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=16)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
model, optimizer, data = accelerator.prepare(model, optimizer, data)

for _ in range(4):
    for inputs, targets in data:
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()

losses = accelerator.gather(loss.detach().reshape(1))
accelerator.print(
    f"{accelerator.num_processes} ranks on {torch.distributed.get_backend()}, "
    f"{accelerator.distributed_type.value}: loss {losses.mean().item():.6f}"
)
accelerator.end_training()
