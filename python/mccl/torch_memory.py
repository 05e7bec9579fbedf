"""GPU memory for torch that collectives use where it lies, instead of a copy of it.

    group = dist.group.WORLD
    backend = group._get_backend(device)
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        data = torch.empty(1 << 24, device=device)
    backend.register_mem_pool(pool)  # on all ranks

What is allocated later is used where it lies from the next register_mem_pool() on.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .torch_backend import load

if TYPE_CHECKING:
    import torch


@functools.cache
def allocator() -> Any:
    """What ``torch.cuda.MemPool`` takes."""
    import torch

    return torch._C._cuda_customAllocator(*load().memory_functions())


@functools.cache
def _pool(index: int) -> torch.cuda.MemPool:
    """Of what torch asks a process group for: one pool for each GPU."""
    import torch

    with torch.cuda.device(index):
        return torch.cuda.MemPool(allocator())


def empty(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of one dimension in such memory."""
    import torch

    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.use_mem_pool(_pool(index), index):
        return torch.empty(size, dtype=dtype, device=torch.device("cuda", index))
