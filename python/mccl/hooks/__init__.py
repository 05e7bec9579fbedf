"""Sends gradients of DDP and FSDP2 in fewer bytes, and loses none of what rounding leaves out.

    model = DistributedDataParallel(net)
    state = mccl.hooks.compress(model, "int8")

    fully_shard(model)
    state = mccl.hooks.compress(model, "int8")

Every rank keeps, for each parameter, what rounding its gradients has left out so far (the
residual), and adds it to the next gradients before it rounds those (error feedback: Seide et al.,
1-Bit Stochastic Gradient Descent, 2014; Karimireddy et al., Error Feedback Fixes SignSGD, 2019). So
codecs that drop nearly everything, such as topk, train nearly as well as exact sums do. What
rounding the sum leaves out is kept too, by the rank that rounds it (Tang et al., DoubleSqueeze,
2019). Where ranks share a machine, one of them rounds the machine's sum, and keeps that residual.

Residuals are float32 whatever the type of the gradients, and float64 for those of float64. A step
whose gradients are not finite, which a loss scaler skips, leaves them as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from .buckets import BucketState, Rounded
from .powersgd import PowerSgd
from .sharded import Sharded
from .state import State
from .statistics import Share, Statistics

__all__ = ["Statistics", "biases_and_norms", "compress"]


def biases_and_norms(name: str, parameter: torch.nn.Parameter) -> bool:
    """Selects parameters of one dimension: they are few, and suffer most from rounding."""
    return parameter.dim() < 2


def compress(
    model: DistributedDataParallel | torch.nn.Module,
    codec: str,
    *,
    ratio: float | None = None,
    rank: int = 2,
    warm_up: int = 0,
    ramp: int = 0,
    momentum: float = 0.0,
    exact: Callable[[str, torch.nn.Parameter], bool] = biases_and_norms,
    report_every: int = 0,
) -> State:
    """Has a model of DistributedDataParallel or fully_shard send its gradients in fewer bytes.

    A collective: all ranks of the model's process group call it, with the same arguments, before
    the first step. Complex gradients are compressed as their real and imaginary parts. Sparse
    gradients are exact. The logger "mccl" says once, on rank 0, what cannot be compressed, how many
    bytes that is, and why.

    Args:
        model: A model that has no hook yet. Its process group has the backend "mccl" for host
            memory. For fully_shard, the module that it was called on last; powersgd is then not
            available, and a rank keeps as much as the whole gradients take, not its share of them.
        codec: fp16, bf16, int8, fp8, fp8_e5m2, int4, topk or powersgd.
        ratio: topk: the share of the elements that each rank sends; by default the setting
            topk_ratio.
        rank: powersgd: the number of columns of each of the two matrices that stand for one.
        warm_up: The number of exact steps at the start, while gradients still change much.
        ramp: topk: the number of steps after the warm-up that send more: a quarter of the elements,
            then a quarter of that, and so on, down to the ratio.
        momentum: DistributedDataParallel and the codecs: each rank takes the momentum of its own
            gradients before it rounds them, and clears it where topk has sent an element. The
            optimizer must then have none: torch.optim.SGD(parameters, rate).
        exact: Returns whether a parameter, given its name, is never rounded; by default those of
            one dimension.
        report_every: Rank 0 prints a line of statistics every so many steps; 0: never.

    Returns:
        The state: its ``statistics``, and ``state_dict()`` and ``load_state_dict()`` for
        checkpoints, by names of parameters.

    Raises:
        ValueError: An unknown codec (with the nearest name), a ratio, rank or count out of range,
            or a ramp or momentum where there is none.
        RuntimeError: The model has a hook already.
    """
    rest: dict[str, Any] = {"warm_up": warm_up, "exact": exact, "report_every": report_every}
    share = Share(codec, ratio, ramp)
    sharded = not isinstance(model, DistributedDataParallel)
    if momentum and (sharded or codec == "powersgd"):
        raise ValueError(
            "momentum is for DistributedDataParallel and the codecs; leave it to the optimizer"
        )
    if sharded:
        if codec == "powersgd":
            raise ValueError("powersgd is for DistributedDataParallel; fully_shard has the codecs")
        return Sharded(model, codec, share, **rest)
    state: BucketState = (
        PowerSgd(model, rank, **rest)
        if codec == "powersgd"
        else Rounded(model, codec, share, momentum, **rest)
    )
    model.register_comm_hook(state, lambda state, bucket: state.reduce(bucket))
    return state
