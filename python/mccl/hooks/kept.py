"""Tensors that a hook carries from one step to the next."""

from __future__ import annotations

import torch


class Kept:
    """Tensors by parameter name, all replaced together when a step ends.

    A step stores new tensors, which replace the old ones when the step ends. If its gradients were
    not finite, the optimizer skips the step, and the new tensors are dropped.
    """

    def __init__(self, noun: str, shaped_as_gradient: bool = True) -> None:
        #: Word for one of the tensors in messages.
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
        """Stores the tensor that replaces the one of this name when the step ends."""
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


def on_current_stream(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor; its memory is not reused before the current stream's work has ended."""
    if tensor.is_cuda:  # it may have been allocated on another stream
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor
