"""Trains by DDP under torchft and continues if a replica is killed.

TORCHFT_LIGHTHOUSE is the address of a torchft_lighthouse. Each process is a replica; the argument
is the number of steps. A replica that is started later receives the weights of the others.
"""

import os
import sys
from datetime import timedelta

import torch
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer

from mccl.torchft import ProcessGroupMCCL

store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
torch.manual_seed(os.getpid())
layer = torch.nn.Linear(8, 1)
descent = torch.optim.SGD(layer.parameters(), lr=0.01)


def load(state: dict) -> None:
    """Loads the state of another replica."""
    layer.load_state_dict(state["layer"])
    descent.load_state_dict(state["descent"])


manager = Manager(
    pg=ProcessGroupMCCL(timeout=timedelta(seconds=20)),
    load_state_dict=load,
    state_dict=lambda: {"layer": layer.state_dict(), "descent": descent.state_dict()},
    min_replica_size=1,
    timeout=timedelta(seconds=20),
    rank=0,
    world_size=1,
    store_addr="localhost",
    store_port=store.port,
    hostname="localhost",
    replica_id=f"replica-{os.getpid()}",
)
model = DistributedDataParallel(manager, layer)
optimizer = Optimizer(manager, descent)

while manager.current_step() < int(sys.argv[1]):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
    optimizer.step()
    print(
        f"step {manager.current_step()} replicas {manager.num_participants()} "
        f"weights {layer.weight.sum().item():.8f}",
        flush=True,
    )
manager.shutdown(wait=False)
