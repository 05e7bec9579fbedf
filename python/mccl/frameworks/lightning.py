"""Adds the strategy "ddp_mccl" to Lightning's Trainer and Fabric."""

from __future__ import annotations

from types import ModuleType

from mccl.torch_names import BACKEND


def change(strategies: ModuleType) -> None:
    """Registers the strategy in the registry of lightning.pytorch or of lightning.fabric."""
    in_trainer = hasattr(strategies, "StrategyRegistry")
    registry = strategies.StrategyRegistry if in_trainer else strategies.STRATEGY_REGISTRY
    registry.register(
        "ddp_mccl",
        strategies.DDPStrategy,
        description="DDP strategy with the backend of MCCL",
        process_group_backend=BACKEND,
        start_method="popen",
    )
