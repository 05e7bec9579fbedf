"""The share of the elements that topk sends while it comes down to what was asked for."""

from __future__ import annotations

#: Of the first steps; each further stage sends a quarter of the one before.
FIRST = 0.25


def check_ramp(ramp: int, codec: str) -> None:
    """Raises ValueError for a ramp of another codec, or of fewer than no steps."""
    if ramp < 0:
        raise ValueError(f"ramp counts steps; found {ramp}")
    if ramp and codec != "topk":
        raise ValueError(f"ramp is of topk, whose ratio it lowers step by step; found {codec}")


def ratio_at(step: int, ratio: float, ramp: int) -> float:
    """In the step-th of `ramp` steps, which are divided evenly among the stages.

    For a ratio of 0.01 those are 0.25, 0.0625 and 0.015625 (Lin et al., Deep Gradient Compression,
    2018); after them, and where the ratio is as large as the first, it is the ratio itself.
    """
    stages = []
    share = FIRST
    while share > ratio:
        stages.append(share)
        share /= 4
    return stages[step * len(stages) // ramp] if stages and step < ramp else ratio
