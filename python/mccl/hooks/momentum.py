"""Momentum that is applied before rounding, instead of afterwards by the optimizer."""

from __future__ import annotations

import torch

from .kept import Kept
from .tensors import is_used, wide


class Momentum:
    """The momentum of this rank's gradients, by name, in host memory.

    A gradient that waits in a residual for many steps reaches the optimizer late, and all at once.
    Momentum in the optimizer would then prolong its effect further. If momentum is applied before
    rounding, the residual accumulates the updates that the optimizer would have made meanwhile
    (momentum correction: Lin et al., Deep Gradient Compression, 2018). If everything is sent, the
    average of the ranks' momenta is the momentum of the average.
    """

    def __init__(self, factor: float) -> None:
        if not 0 <= factor < 1:
            raise ValueError(f"momentum: expected at least 0 and below 1; found {factor}")
        self.factor = factor
        self.velocities = Kept("momentum")

    def accelerate(self, name: str, gradient: torch.Tensor) -> None:
        """Replaces a gradient with its velocity, unless the step did not use the parameter."""
        if not self.factor or not is_used(gradient):
            return
        velocity = gradient.to("cpu", wide(gradient.dtype), copy=True)
        before = self.velocities.get(name)
        if before is not None:
            velocity.add_(before, alpha=self.factor)
        gradient.copy_(velocity)
        self.velocities.put(name, velocity)

    def stop_sent(self, name: str, left: torch.Tensor) -> None:
        """Clears the velocity of elements that were sent in full, which would overshoot."""
        velocity = self.velocities.get(name)
        if velocity is not None:
            velocity.mul_(left != 0)
