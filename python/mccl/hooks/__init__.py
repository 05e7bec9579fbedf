"""Gradients of DDP and FSDP2 in fewer bytes, with what was lost added to the next step's.

    model = DistributedDataParallel(net)
    state = mccl.hooks.compress(model, "int8")

    fully_shard(model)
    state = mccl.hooks.compress(model, "int8")

Every rank keeps, parameter by parameter, what rounding its gradients has left out so far, and adds
it before it rounds the next ones (error feedback: Seide et al., 1-Bit Stochastic Gradient Descent,
2014; Karimireddy et al., Error Feedback Fixes SignSGD, 2019). So codecs that drop nearly all,
such as topk, train nearly as well as exact sums do. What rounding the sum leaves out is kept too,
by the rank that has rounded it (Tang et al., DoubleSqueeze, 2019); and where ranks share a machine,
whose sum is rounded, by the rank that has done that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from .buckets import BucketState, PowerSgd, Rounded
from .sharded import Sharded
from .state import Share, State, Statistics

__all__ = ["Statistics", "biases_and_norms", "compress"]


def biases_and_norms(name: str, parameter: torch.nn.Parameter) -> bool:
    """Parameters of one dimension: few, and hurt most by rounding."""
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
    """Makes a model of DistributedDataParallel or fully_shard send its gradients in fewer bytes.

    A collective: all ranks of the model's process group call it, with the same arguments, before
    the first step.

    Args:
        model: Not yet with a hook. Its process group has the backend "mccl" for host memory. Of
            fully_shard, the module that it was called on last; a rank then keeps as much as the
            whole gradients take, not its share of them, and powersgd is not there.
        codec: fp16, bf16, int8, fp8, fp8_e5m2, int4, topk or powersgd.
        ratio: topk: the share of the elements that each rank sends; by default the setting
            topk_ratio.
        rank: powersgd: the columns of each of the two matrices that stand for one.
        warm_up: So many steps are exact, while gradients still change much.
        ramp: topk: so many steps after those send more: a quarter of the elements, then a quarter
            of that, and so on, down to the ratio.
        momentum: Of DistributedDataParallel and the codecs: each rank takes the momentum of its own
            gradients, before they are rounded, and begins anew where topk has sent an element. Give
            the optimizer none then: torch.optim.SGD(parameters, rate) does the rest.
        exact: Whether a parameter, by its name, is never rounded; by default those of one
            dimension.
        report_every: Rank 0 prints a line of statistics every so many steps; 0: never.

    Returns:
        The state: its ``statistics``; ``state_dict()`` and ``load_state_dict()``, by names of
        parameters, for checkpoints.

    Raises:
        ValueError: An unknown codec (with the nearest name), a ratio, rank or count out of range,
            a ramp or momentum where there is none.
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
