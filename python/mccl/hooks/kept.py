"""Tensors that a hook carries from one step to the next."""

from __future__ import annotations

import torch

from .tensors import is_used, wide


class Kept:
    """Tensors by parameter name, all replaced together when a step ends.

    A step stores new tensors, which replace the old ones when the step ends. If its gradients were
    not finite, the optimizer skips the step, and the new tensors are dropped.
    """

    def __init__(self, noun: str, shaped_as_gradient: bool = True) -> None:
        #: Word for one of these tensors, for messages.
        self.noun = noun
        self.shaped_as_gradient = shaped_as_gradient
        #: Tensors as of the last step that counted.
        self.tensors: dict[str, torch.Tensor] = {}
        self._next: dict[str, torch.Tensor] = {}

    def get(self, name: str) -> torch.Tensor | None:
        """Returns the newest tensor of this name, for use on the current stream."""
        tensor = self._next.get(name, self.tensors.get(name))
        return None if tensor is None else on_current_stream(tensor)

    def put(self, name: str, tensor: torch.Tensor) -> None:
        """Stores a tensor that replaces the present tensor of this name when the step ends."""
        self._next[name] = tensor

    def end_step(self, counts: bool) -> None:
        """Makes the step's changes permanent, or drops them if the step does not count."""
        if counts:
            # Buckets end in any order, but the order of names is the same on all ranks.
            self.tensors.update(sorted(self._next.items()))
        self._next = {}

    def copies(self) -> dict[str, torch.Tensor]:
        """Returns copies of the tensors as of the last step that counted."""
        return {name: on_current_stream(each).clone() for name, each in self.tensors.items()}


class Momentum:
    """The momentum of this rank's gradients, by name, in host memory.

    It is applied before rounding, instead of afterwards by the optimizer.

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


def on_current_stream(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor; its memory is not reused before the current stream's work has ended."""
    if tensor.is_cuda:  # it may have been allocated on another stream
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor
