"""Tensors that a hook carries from one step to the next."""

from __future__ import annotations

import torch


class Kept:
    """Tensors by parameter name, replaced as a whole when a step ends.

    A step puts new tensors beside the old ones. They take their place when the step ends, unless
    its gradients were not finite: then the optimizer skips the step, and nothing of it may last.
    """

    def __init__(self, noun: str, shaped_as_gradient: bool = True) -> None:
        #: What a message calls one of the tensors.
        self.noun = noun
        self.shaped_as_gradient = shaped_as_gradient
        #: As of the last step that counted.
        self.tensors: dict[str, torch.Tensor] = {}
        self._next: dict[str, torch.Tensor] = {}

    def get(self, name: str) -> torch.Tensor | None:
        """Returns the newest tensor of this name, for use on the current stream."""
        tensor = self._next.get(name, self.tensors.get(name))
        return None if tensor is None else on_current_stream(tensor)

    def put(self, name: str, tensor: torch.Tensor) -> None:
        """Replaces a tensor from the end of this step on."""
        self._next[name] = tensor

    def end_step(self, counts: bool) -> None:
        """Makes the step's changes last, or drops them where the step does not count."""
        if counts:
            # Buckets end in any order, but the order of names is the same on all ranks.
            self.tensors.update(sorted(self._next.items()))
        self._next = {}

    def copies(self) -> dict[str, torch.Tensor]:
        """Returns copies of the tensors as of the last step that counted."""
        return {name: on_current_stream(each).clone() for name, each in self.tensors.items()}


def on_current_stream(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor; its memory is not reused before the current stream has done its work."""
    if tensor.is_cuda:  # perhaps allocated on another stream
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor
