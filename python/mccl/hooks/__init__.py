"""Compresses gradients of DDP and FSDP2. Later steps send what rounding dropped.

    model = DistributedDataParallel(net)
    state = mccl.hooks.compress(model, "int8")

    fully_shard(model)
    state = mccl.hooks.compress(model, "int8")

For each parameter, every rank keeps the residual: the part of its gradients that rounding has
dropped so far. The rank adds the residual to its next gradient before it rounds that gradient
(error feedback: Seide et al., 1-Bit Stochastic Gradient Descent, 2014; Karimireddy et al., Error
Feedback Fixes SignSGD, 2019). So even codecs that drop most of a gradient, such as topk, train
nearly as well as exact sums. The rank that rounds the sum also keeps the residual of the sum (Tang
et al., DoubleSqueeze, 2019). If ranks share a machine, one of them rounds the machine's sum and
keeps that residual.

Residuals are float32 for all types of gradients except float64, whose residuals are float64. A step
with gradients that are not finite, which a loss scaler skips, does not change residuals.
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
    """Selects parameters of one dimension: they have few elements and suffer most from rounding."""
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
    """Compresses the gradients that a model of DistributedDataParallel or fully_shard sends.

    A collective: all ranks of the model's process group must call it, with the same arguments,
    before the first step. Complex gradients are compressed as their real and imaginary parts.
    Sparse gradients are sent exactly. On rank 0 the logger "mccl" reports once which gradients
    cannot be compressed, how many bytes they have, and why.

    Args:
        model: A model without a hook. Its process group must have the backend "mccl" for host
            memory. For fully_shard, the module on which it was called last; powersgd is then not
            available, and each rank keeps residuals for all elements of the gradients, not only for
            its share.
        codec: fp16, bf16, int8, fp8, fp8_e5m2, int4, topk or powersgd.
        ratio: topk: the share of the elements that each rank sends, above 0 and at most 1; by
            default the setting topk_ratio.
        rank: powersgd: the number of columns of each of the two matrices that replace a gradient.
        warm_up: Number of steps without compression at the start, while gradients change much.
        ramp: topk: number of steps after the warm-up in which the share falls to the ratio: first
            a quarter of the elements, then a quarter of that, and so on.
        momentum: Factor of the momentum, at least 0 and below 1; only for DistributedDataParallel,
            and not for powersgd. Each rank applies it to its own gradients before it rounds them,
            and clears the momentum of elements that topk has sent. The optimizer must then use no
            momentum: torch.optim.SGD(parameters, rate).
        exact: Function of a parameter's name and the parameter; returns True if its gradient must
            never be rounded. By default, that holds for parameters of one dimension.
        report_every: Number of steps between lines of statistics that rank 0 prints; 0: no lines.

    Returns:
        The state: its ``statistics``, and ``state_dict()`` and ``load_state_dict()`` for
        checkpoints, by names of parameters.

    Raises:
        ValueError: An unknown codec (with the nearest name), a ratio, rank or count out of range,
            or a ramp or momentum that does not apply.
        RuntimeError: The model has a hook already.
    """
    rest: dict[str, Any] = {"warm_up": warm_up, "exact": exact, "report_every": report_every}
    share = Share(codec, ratio, ramp)
    sharded = not isinstance(model, DistributedDataParallel)
    if momentum and (sharded or codec == "powersgd"):
        raise ValueError(
            "momentum applies only to DistributedDataParallel, with a codec other than powersgd; "
            "leave it to the optimizer"
        )
    if sharded:
        if codec == "powersgd":
            raise ValueError(
                "powersgd works only with DistributedDataParallel; with fully_shard, choose a codec"
            )
        return Sharded(model, codec, share, **rest)
    state: BucketState = (
        PowerSgd(model, rank, **rest)
        if codec == "powersgd"
        else Rounded(model, codec, share, momentum, **rest)
    )
    model.register_comm_hook(state, lambda state, bucket: state.reduce(bucket))
    return state
