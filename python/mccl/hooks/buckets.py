"""Hooks for DistributedDataParallel, which reduces gradients in buckets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .kept import Momentum
from .state import UNCODED, State, group_like
from .statistics import Share
from .tensors import add_residual, after, energy, is_finite, is_used, pack, real, unpack, wide

#: A parameter's name, and the real view of its gradient in a bucket.
Part = tuple[str, torch.Tensor]
TensorFuture = torch.futures.Future[torch.Tensor]


class Filled(NamedTuple):
    """A gradient that was packed for rounding."""

    name: str
    shape: torch.Size
    is_used: bool


class BucketState(State, ABC):
    """Base of the hooks for DistributedDataParallel."""

    def __init__(self, model: DistributedDataParallel, **rest: Any) -> None:
        super().__init__(model.process_group, model.module, **rest)
        self._open_buckets = 0
        self._has_last = False
        self._is_finite = True

    def reduce(self, bucket: dist.GradBucket) -> TensorFuture:
        """The hook: returns a future of the bucket's average over all ranks."""
        with self._lock:
            self._open_buckets += 1
            self._has_last |= bucket.is_last()
        flat = bucket.buffer()
        if flat.is_sparse:
            future = self._average_sparse(flat)
        elif self.step < self.warm_up:
            future = self._average(flat, self._parts(bucket))
        else:
            future = self._compress(flat, self._parts(bucket))
        return future.then(self._close)

    @abstractmethod
    def _compress(self, flat: torch.Tensor, parts: list[Part]) -> TensorFuture:
        """Averages a bucket after the warm-up, in fewer bytes where possible."""

    def _close(self, done: TensorFuture) -> torch.Tensor:
        """Called when a bucket is complete. Ends the step after its last bucket.

        Buckets may end in another order than they begin. All ranks have the same averages, so they
        agree on whether all gradients of the step were finite.
        """
        average = done.value()
        finite = is_finite(average)
        with self._lock:
            self._is_finite &= finite
            self._open_buckets -= 1
            is_over = self._has_last and self._open_buckets == 0
        if is_over:
            counts, self._is_finite, self._has_last = self._is_finite, True, False
            self._end_step(counts)
        return average

    def _parts(self, bucket: dist.GradBucket) -> list[Part]:
        """Returns names and gradients, which are views of the bucket's buffer.

        The buffer of complex parameters is real, but bucket.gradients() treats it as complex.
        """
        parameters = bucket.parameters()
        pieces = bucket.buffer().split([real(each).numel() for each in parameters])
        return [
            (self._names[each], piece.view(real(each).shape))
            for each, piece in zip(parameters, pieces, strict=True)
        ]

    def _average(self, flat: torch.Tensor, parts: list[Part]) -> TensorFuture:
        return self._averaged(flat)

    def _averaged(self, tensor: torch.Tensor) -> TensorFuture:
        work = dist.all_reduce(tensor, dist.ReduceOp.AVG, group=self.group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def _average_sparse(self, given: torch.Tensor) -> TensorFuture:
        """Averages a sparse gradient exactly. The engine sums sparse tensors in host memory."""
        if self.step >= self.warm_up:
            nbytes = given._values().nbytes
            self._note(nbytes, nbytes)
            self._note_reason(
                nbytes, "the gradients are sparse, so momentum= does not apply either"
            )
        host = given.cpu()
        work = dist.all_reduce(host, group=self.group, async_op=True)
        return after(work, given.device, lambda: host.div_(self.size).to(given.device))


class Rounded(BucketState):
    """Rounds gradients by a codec of the engine, in host memory."""

    def __init__(
        self,
        model: DistributedDataParallel,
        codec: str,
        share: Share,
        momentum: float,
        **rest: Any,
    ) -> None:
        self._momentum = Momentum(momentum)
        super().__init__(model, **rest)
        self._kept["velocities"] = self._momentum.velocities
        self.rounding = group_like(self.group, codec, share.ratio)
        self._backend = self.rounding._get_backend(torch.device("cpu"))
        self._say_if_nothing_is_gained(self._backend, codec)
        self._share = share
        self._drops_elements = codec == "topk"

    def _average(self, flat: torch.Tensor, parts: list[Part]) -> TensorFuture:
        for name, part in parts:
            self._momentum.accelerate(name, part)
        return super()._average(flat, parts)

    def _compress(self, flat: torch.Tensor, parts: list[Part]) -> TensorFuture:
        rounded = [part for name, part in parts if name not in self._exact]
        exact = [(name, part) for name, part in parts if name in self._exact]
        packed = torch.empty(sum(each.numel() for each in rounded), dtype=wide(flat.dtype))
        ratio = self._share.at(self.step - self.warm_up)
        coded = self._backend.bytes_to_sum(packed, ratio)
        exact_bytes = sum(part.nbytes for _, part in exact)
        if coded >= flat.nbytes - exact_bytes:
            return self._average_with_residuals(flat, parts)
        for name, part in exact:
            self._momentum.accelerate(name, part)
        apart = self._averaged(pack([part for _, part in exact])) if exact else None
        filled = self._fill(packed, flat, parts)
        wanted = energy(packed)
        left = torch.empty_like(packed)
        work = self._backend.all_reduce_keeping(packed, left, dist.ReduceOp.AVG, ratio)

        def end() -> torch.Tensor:
            self._keep(left, filled)
            self._note(flat.nbytes, coded + exact_bytes, energy(left), wanted)
            # Every rank rounds the same average to the type of the gradients, once.
            unpack(packed.to(flat.dtype).to(flat.device), rounded)
            if apart is not None:
                unpack(apart.wait(), [part for _, part in exact])
            return flat

        return after(work, flat.device, end)

    def _average_with_residuals(self, flat: torch.Tensor, parts: list[Part]) -> TensorFuture:
        """Averages a bucket exactly, with the residuals added, if a codec would not shorten it."""
        for name, part in parts:
            self._momentum.accelerate(name, part)
            residual = None if name in self._exact else self._residuals.get(name)
            # If no rank used the parameter, DDP drops its average.
            if residual is not None and is_used(part):
                self._residuals.put(name, add_residual(part, residual))
        self._note(flat.nbytes, flat.nbytes)
        unasked = sum(part.nbytes for name, part in parts if name not in self._exact)
        if unasked:
            self._note_reason(unasked, UNCODED)
        return self._averaged(flat)

    def _fill(self, packed: torch.Tensor, flat: torch.Tensor, parts: list[Part]) -> list[Filled]:
        """Fills `packed` with the gradients and residuals that the codec rounds.

        If no rank used a parameter, DDP drops its average. So a rank that did not use the parameter
        keeps its residual for a later step.
        """
        pieces = flat.cpu().split([part.numel() for _, part in parts])
        filled: list[Filled] = []
        at = 0
        for (name, part), piece in zip(parts, pieces, strict=True):
            if name in self._exact:
                continue
            here = packed[at : at + part.numel()].view(part.shape)
            here.copy_(piece.view(part.shape))
            at += part.numel()
            filled.append(Filled(name, part.shape, is_used(here)))
            if not filled[-1].is_used:
                continue
            self._momentum.accelerate(name, here)
            residual = self._residuals.get(name)
            if residual is not None:
                here.add_(residual)
        return filled

    def _keep(self, left: torch.Tensor, filled: list[Filled]) -> None:
        """Stores what rounding on this rank dropped, from its gradients or from the sum."""
        pieces = left.split([each.shape.numel() for each in filled])
        for each, piece in zip(filled, pieces, strict=True):
            residual = piece.view(each.shape)
            if each.is_used and self._drops_elements:
                self._momentum.stop_sent(each.name, residual)
            waiting = None if each.is_used else self._residuals.get(each.name)
            self._residuals.put(each.name, residual if waiting is None else residual + waiting)
