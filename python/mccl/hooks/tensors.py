"""Views, types and norms of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor itself, or the real view of a complex tensor (torch.view_as_real)."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def real_shape(shape: torch.Size, dtype: torch.dtype) -> torch.Size:
    """Returns the shape of real() of a tensor of this shape and type."""
    return torch.Size([*shape, 2]) if dtype.is_complex else shape


def wide(dtype: torch.dtype) -> torch.dtype:
    """Returns the type in which gradients of `dtype` are added up and residuals are kept."""
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def energy(tensor: torch.Tensor) -> float:
    """Returns the sum of squares, computed in float32 or float64 because 16 bits may overflow."""
    return float(torch.linalg.vector_norm(tensor, dtype=wide(tensor.dtype))) ** 2


def extremes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the smallest and the largest element, or NaN for both if there is a NaN."""
    return torch.stack(torch.aminmax(tensor)) if tensor.numel() else tensor.new_zeros(2)


def is_finite(tensor: torch.Tensor) -> bool:
    """Returns True if a real tensor, dense or sparse, holds neither infinities nor NaN."""
    return bool(extremes(tensor._values() if tensor.is_sparse else tensor).isfinite().all())


def is_used(gradient: torch.Tensor) -> bool:
    """Returns True if this rank used the parameter in this step: its gradient is not all zeros."""
    return bool(extremes(gradient).any())


def add_residual(part: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """Adds a residual to a gradient. Returns what rounding to the gradient's type dropped."""
    wanted = part.to(residual) + residual
    part.copy_(wanted)
    return wanted - part.to(residual)


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the elements of all tensors in one flat tensor."""
    return torch.cat([each.flatten() for each in tensors])


def unpack(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copies consecutive pieces of `flat` into the tensors, rounding to their type."""
    pieces = flat.split([each.numel() for each in tensors])
    for each, piece in zip(tensors, pieces, strict=True):
        each.copy_(piece.view(each.shape))


def after(
    work: dist.Work, device: torch.device, end: Callable[[], torch.Tensor]
) -> torch.futures.Future[torch.Tensor]:
    """Runs `end` once a call on host memory is complete, in order with the streams of `device`.

    The call's own future has no device: its callbacks would run on the default stream, and no
    stream would wait for them. A future with the device runs its callbacks on a separate stream.
    Every stream that uses the result waits for that stream.
    """
    done = work.get_future()

    def checked(_: object) -> torch.Tensor:
        done.value()  # Raises if the call failed.
        return end()

    if device.type != "cuda":
        return done.then(checked)
    on_device: torch.futures.Future[None] = torch.futures.Future(devices=[device])
    done.add_done_callback(lambda _: on_device.set_result(None))
    return on_device.then(checked)


def completed(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Returns a completed future of a tensor that the current stream computes."""
    devices = [tensor.device] if tensor.is_cuda else None
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
    future.set_result(tensor)
    return future
