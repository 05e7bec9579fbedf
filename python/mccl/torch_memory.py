"""GPU memory for torch tensors that collectives access directly, without a copy.

    group = dist.group.WORLD
    backend = group._get_backend(device)
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        data = torch.empty(1 << 24, device=device)
    backend.register_mem_pool(pool)  # on all ranks

Memory that the pool allocates later needs another call of register_mem_pool().
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .torch_backend import load

if TYPE_CHECKING:
    import torch


@functools.cache
def allocator() -> Any:
    """The allocator for ``torch.cuda.MemPool``."""
    import torch

    return torch._C._cuda_customAllocator(*load().memory_functions())


@functools.cache
def _pool(index: int) -> torch.cuda.MemPool:
    """The pool of a GPU, for tensors that torch asks the process group to allocate."""
    import torch

    with torch.cuda.device(index):
        return torch.cuda.MemPool(allocator())


def empty(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of one dimension in memory of the pool, with uninitialised elements."""
    import torch

    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.use_mem_pool(_pool(index), index):
        return torch.empty(size, dtype=dtype, device=torch.device("cuda", index))
