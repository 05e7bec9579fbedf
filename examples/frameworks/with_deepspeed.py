"""Trains on the CPU with DeepSpeed; the last argument is the stage of ZeRO."""

import sys

import deepspeed
import torch
import torch.distributed as dist

deepspeed.init_distributed(dist_backend="mccl")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
config = {
    "train_micro_batch_size_per_gpu": 16,
    "zero_optimization": {"stage": int(sys.argv[-1])},
}
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

x = torch.randn(32, 8)
inputs = x[16 * dist.get_rank() :][:16]
for _ in range(60):
    loss = (engine(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
    engine.backward(loss)
    engine.step()

loss = loss.detach()
dist.all_reduce(loss, dist.ReduceOp.AVG)
if dist.get_rank() == 0:
    stage = engine.zero_optimization_stage()
    print(f"{dist.get_world_size()} ranks on {dist.get_backend()}, stage {stage}: loss {loss:.6f}")
dist.destroy_process_group()
