"""The share of elements that topk sends. A ramp lowers it in stages to the final ratio."""

from __future__ import annotations

#: Share in the first stage; each further stage has a quarter of the previous share.
FIRST = 0.25


def check_ramp(ramp: int, codec: str) -> None:
    """Raises ValueError for a ramp with a codec other than topk, or a negative number of steps."""
    if ramp < 0:
        raise ValueError(f"ramp: expected a number of steps, at least 0; found {ramp}")
    if ramp and codec != "topk":
        raise ValueError(
            f"ramp applies only to topk, whose ratio it lowers step by step; found {codec}"
        )


def ratio_at(step: int, ratio: float, ramp: int) -> float:
    """The share of elements to send in step `step` of a ramp of `ramp` steps.

    The steps are divided evenly among the stages. For a ratio of 0.01 the stages send 0.25, 0.0625
    and 0.015625 (Lin et al., Deep Gradient Compression, 2018). After the ramp, or if the ratio is
    at least that of the first stage, the share is the ratio itself.
    """
    stages = []
    share = FIRST
    while share > ratio:
        stages.append(share)
        share /= 4
    return stages[step * len(stages) // ramp] if stages and step < ramp else ratio
