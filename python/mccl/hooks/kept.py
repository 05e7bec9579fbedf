"""Tensors that a hook keeps from one step to the next."""

from __future__ import annotations

import torch

from .tensors import is_used, wide


class Kept:
    """Tensors by parameter name, all replaced together when a step ends.

    put() stores new tensors during a step, and end_step() replaces the old tensors with them. If a
    gradient was not finite, the optimizer skips the step, and end_step() drops the new tensors.
    """

    def __init__(self, noun: str, shaped_as_gradient: bool = True) -> None:
        #: Word for one of these tensors, for messages.
        self.noun = noun
        self.shaped_as_gradient = shaped_as_gradient
        #: Tensors at the end of the last step whose gradients were finite.
        self.tensors: dict[str, torch.Tensor] = {}
        self._next: dict[str, torch.Tensor] = {}

    def get(self, name: str) -> torch.Tensor | None:
        """Returns the newest tensor of this name, for use on the current stream."""
        tensor = self._next.get(name, self.tensors.get(name))
        return None if tensor is None else on_current_stream(tensor)

    def put(self, name: str, tensor: torch.Tensor) -> None:
        """Stores a tensor that replaces the current tensor of this name when the step ends."""
        self._next[name] = tensor

    def end_step(self, counts: bool) -> None:
        """Makes the step's changes permanent; drops them if a gradient was not finite."""
        if counts:
            # Buckets end in any order, but the order of names is the same on all ranks.
            self.tensors.update(sorted(self._next.items()))
        self._next = {}

    def copies(self) -> dict[str, torch.Tensor]:
        """Returns copies of `tensors`."""
        return {name: on_current_stream(each).clone() for name, each in self.tensors.items()}


class Momentum:
    """The momentum of this rank's gradients, by name, in host memory.

    The hook applies momentum before rounding; the optimizer must not apply it again. A gradient
    that waits in a residual for many steps reaches the optimizer late, and momentum in the
    optimizer would delay its effect further. With momentum before rounding, the residual
    accumulates the updates that the optimizer would have made meanwhile (momentum correction: Lin
    et al., Deep Gradient Compression, 2018). If nothing is dropped, the average of the ranks'
    momenta is the momentum of the average.
    """

    def __init__(self, factor: float) -> None:
        if not 0 <= factor < 1:
            raise ValueError(f"momentum: expected at least 0 and below 1; found {factor}")
        self.factor = factor
        self.velocities = Kept("momentum")

    def accelerate(self, name: str, gradient: torch.Tensor) -> None:
        """Adds the momentum to a gradient; no-op if the step did not use the parameter."""
        if not self.factor or not is_used(gradient):
            return
        velocity = gradient.to("cpu", wide(gradient.dtype), copy=True)
        before = self.velocities.get(name)
        if before is not None:
            velocity.add_(before, alpha=self.factor)
        gradient.copy_(velocity)
        self.velocities.put(name, velocity)

    def stop_sent(self, name: str, left: torch.Tensor) -> None:
        """Clears the velocity of sent elements (`left` is 0): stale momentum would overshoot."""
        velocity = self.velocities.get(name)
        if velocity is not None:
            velocity.mul_(left != 0)


def on_current_stream(tensor: torch.Tensor) -> torch.Tensor:
    """Returns `tensor`. Its memory is not reused before the current stream has used it."""
    if tensor.is_cuda:  # It may have been allocated on another stream.
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor
