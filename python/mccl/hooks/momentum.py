"""Momentum before rounding instead of after it."""

from __future__ import annotations

import torch

from .state import finite


class Momentum:
    """Of each parameter's gradients on this rank, by name.

    A gradient that waits in a residual for many steps comes to the optimizer late, and all at once:
    momentum after that carries it on for as long again. Taken before the residual, it is what the
    other steps would have made of it (momentum correction: Lin et al., Deep Gradient Compression,
    2018). While all is sent, the average of the ranks' momenta is the momentum of the average.
    """

    def __init__(self, factor: float) -> None:
        if not 0 <= factor < 1:
            raise ValueError(f"momentum is at least 0 and below 1; found {factor}")
        self.factor = factor
        self.velocities: dict[str, torch.Tensor] = {}

    def accelerate(self, name: str, gradient: torch.Tensor) -> None:
        """The gradient becomes the velocity that it has changed; one that is zero was not used."""
        if not gradient.any():
            return
        velocity = self.velocities.get(name)
        if velocity is None:
            velocity = torch.zeros_like(gradient)
        velocity = velocity.mul_(self.factor).add_(gradient)
        gradient.copy_(velocity)
        self.velocities[name] = finite(velocity)

    def stop_sent(self, name: str, left: torch.Tensor) -> None:
        """What has been sent whole begins anew: the old direction would carry it too far."""
        velocity = self.velocities.get(name)
        if velocity is not None:
            velocity.mul_(left != 0)
