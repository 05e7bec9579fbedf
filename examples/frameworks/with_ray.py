"""Sums over two workers of Ray Train, on two nodes if the cluster has them."""

import os

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
    nodes = [None] * dist.get_world_size()
    dist.all_gather_object(nodes, ray.get_runtime_context().get_node_id())
    if dist.get_rank() == 0:
        print(
            f"{len(nodes)} ranks on {dist.get_backend()} and {len(set(nodes))} nodes: "
            f"{total.tolist()}"
        )


key = {name: os.environ[name] for name in ("MCCL_JOB_KEY",) if name in os.environ}
ray.init(include_dashboard=False, runtime_env={"env_vars": key})
placement = "STRICT_SPREAD" if len(ray.nodes()) > 1 else "PACK"
workers = ScalingConfig(num_workers=2, placement_strategy=placement)
TorchTrainer(train, torch_config=TorchConfig(backend="mccl"), scaling_config=workers).fit()
