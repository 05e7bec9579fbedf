"""Approximates gradients by products of two thin matrices (Vogels et al., PowerSGD, 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .buckets import BucketState, Part, TensorFuture
from .kept import Kept
from .state import TOO_SMALL
from .tensors import completed, energy, is_used, pack, unpack, wide


@dataclass
class Approximation:
    """A gradient, and the two matrices whose product approximates it."""

    name: str
    part: torch.Tensor
    #: The gradient with its residual, in the wide type.
    matrix: torch.Tensor
    #: The residual if `matrix` does not include it, because this rank did not use the parameter;
    #: else None.
    waiting: torch.Tensor | None
    right: torch.Tensor
    left: torch.Tensor


class PowerSgd(BucketState):
    """Approximates each gradient by a matrix of low rank, on the gradient's device.

    Each step does one iteration of the power method, starting from the result of the last step. A
    gradient is sent exactly if its parameter has fewer than two dimensions, or if the two matrices
    would not be smaller.
    """

    def __init__(self, model: DistributedDataParallel, rank: int, **rest: Any) -> None:
        super().__init__(model, **rest)
        if rank < 1:
            raise ValueError(f"powersgd: expected a rank of at least 1; found {rank}")
        self.rank = rank
        #: The matrices with which the next step starts.
        self._rights = Kept("matrix", shaped_as_gradient=False)
        self._kept["right"] = self._rights

    def _home(self, name: str) -> torch.device:
        return self._parameters[name].device

    def _is_thin(self, name: str, part: torch.Tensor) -> bool:
        """Returns whether to approximate the gradient: the two matrices must be smaller."""
        if name in self._exact or self._parameters[name].dim() < 2 or part.numel() == 0:
            return False
        rows = part.shape[0]
        columns = part.numel() // rows
        return (rows + columns) * self.rank < part.numel()

    def _begin(self, name: str, part: torch.Tensor) -> Approximation:
        """Adds the residual to a gradient, and multiplies it by the matrix of the last step."""
        matrix = part.to(wide(part.dtype)).view(part.shape[0], -1)
        residual = waiting = self._residuals.get(name)
        if residual is not None and is_used(part):
            matrix = matrix + residual.view(matrix.shape)
            waiting = None
        right = self._rights.get(name)
        if right is None or right.shape != (matrix.shape[1], self.rank):
            right = self._first_right(name, matrix)
        # Columns are scaled to length 1, because the matrices are sent in the type of the
        # gradients, whose range may be small.
        right = torch.nn.functional.normalize(right, dim=0)
        return Approximation(name, part, matrix, waiting, right, (matrix @ right).to(part.dtype))

    def _first_right(self, name: str, matrix: torch.Tensor) -> torch.Tensor:
        """Returns the same random matrix on all ranks."""
        generator = torch.Generator().manual_seed(sum(name.encode()) * 2654435761 % 2**31)
        return torch.randn(matrix.shape[1], self.rank, generator=generator).to(matrix)

    def _compress(self, flat: torch.Tensor, parts: list[Part]) -> TensorFuture:
        thin = [self._begin(*part) for part in parts if self._is_thin(*part)]
        exact = [part for part in parts if not self._is_thin(*part)]
        sent = self._average_all([*(part for _, part in exact), *(each.left for each in thin)])
        rights = []
        for each in thin:
            each.left = torch.linalg.qr(each.left.to(each.matrix.dtype)).Q
            rights.append((each.matrix.t() @ each.left).to(each.part.dtype))
        sent += self._average_all(rights)
        lost = wanted = 0.0
        for each, right in zip(thin, rights, strict=True):
            wanted += energy(each.matrix)
            lost += self._finish(each, right.to(each.matrix.dtype))
        self._note(flat.nbytes, sent, lost, wanted)
        unasked = sum(part.nbytes for name, part in exact if name not in self._exact)
        if unasked:
            self._note_reason(unasked, TOO_SMALL)
        return completed(flat)

    def _finish(self, each: Approximation, right: torch.Tensor) -> float:
        """Writes the product to the gradient. Returns the sum of squares of the dropped part."""
        if right.any():
            self._rights.put(each.name, right)
        product = (each.left @ right.t()).view(each.part.shape).to(each.part.dtype)
        residual = each.matrix.view(each.part.shape) - product
        kept = residual if each.waiting is None else residual + each.waiting
        self._residuals.put(each.name, kept)
        each.part.copy_(product)  # Must be last: `matrix` may be a view of `part`.
        return energy(residual)

    def _average_all(self, tensors: list[torch.Tensor]) -> int:
        """Averages all tensors over the ranks in one call. Returns their total number of bytes."""
        if not tensors:
            return 0
        flat = pack(tensors)
        dist.all_reduce(flat, dist.ReduceOp.AVG, group=self.group)
        unpack(flat, tensors)
        return flat.nbytes
