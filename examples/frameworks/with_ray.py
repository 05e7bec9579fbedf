"""Sums over two workers of Ray Train on this machine."""

import ray
import torch
import torch.distributed as dist
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model


def train(_: dict) -> None:
    """Runs on each worker."""
    model = prepare_model(torch.nn.Linear(8, 1))
    model(torch.ones(4, 8)).sum().backward()
    total = torch.ones(3)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks on {dist.get_backend()}: {total.tolist()}")


ray.init(num_cpus=2, include_dashboard=False)
workers = ScalingConfig(num_workers=2)
TorchTrainer(train, torch_config=TorchConfig(backend="mccl"), scaling_config=workers).fit()
