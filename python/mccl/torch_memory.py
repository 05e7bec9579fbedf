"""Memory for torch tensors that collectives access directly, without a copy.

On the CPU, mccl.empty() makes tensors that the other ranks of the host read where they lie. DDP
allocates its gradient buckets so with DDP_DISABLE_COMM_MEM=0, and FSDP2 its buffers after
set_allocate_memory_from_process_group_for_comm(True).

On GPUs, a pool of torch uses the allocator of MCCL:

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
import math
import operator
import sys
from typing import TYPE_CHECKING, Any

from .torch_backend import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import SupportsIndex

    import torch
    import torch.distributed as dist


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


def empty(
    *size: SupportsIndex | Sequence[SupportsIndex],
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Makes a tensor with uninitialised elements for collectives of a group.

    The other ranks of this host read its memory where it lies, so large calls need not copy the
    data for them first. Calls work with every tensor; such tensors make them faster. The memory is
    freed with the tensor, which may outlive the group. A forked child shares it with its parent.
    Thread-safe.

    Args:
        size: The lengths, as for ``torch.empty``.
        dtype: Type of the elements; the default is torch's default.
        device: "cpu" or a CUDA device.
        group: A group with the backend "mccl" for the device; the default is the world.

    Raises:
        ValueError: A length is negative, the tensor is too large, the type is quantized, or there
            is no such group.
        TypeError: A length is no integer.
        torch.distributed.DistBackendError: The group was shut down, or there is not enough memory.
    """
    import torch
    import torch.distributed as dist

    given = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    lengths = [operator.index(length) for length in given]
    kind = dtype or torch.get_default_dtype()
    if any(length < 0 for length in lengths):
        raise ValueError(f"mccl.empty: negative length in {lengths}")
    if math.prod(lengths) * kind.itemsize > sys.maxsize:
        raise ValueError(f"mccl.empty: a tensor of lengths {lengths} is too large")
    if group is None:
        if not dist.is_initialized():
            raise ValueError("mccl.empty: there is no group; call init_process_group() first")
        group = dist.group.WORLD
    if torch.device(device).type not in ("cpu", "cuda"):
        raise ValueError(f"mccl.empty: expected the CPU or a CUDA device, got {device}")
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError("mccl.empty: this process does not belong to the group")
    backend = group._get_backend(torch.device(device))
    if backend.name() != "mccl":
        raise ValueError(
            f"mccl.empty: the backend of the group for {device} is {backend.name()}; expected mccl"
        )
    tensor: torch.Tensor = backend.allocate_tensor(
        math.prod(lengths), dtype=kind, device=torch.device(device)
    )
    return tensor.view(lengths)


def empty_in_pool(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of one dimension in memory of the pool, with uninitialised elements."""
    import torch

    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.use_mem_pool(_pool(index), index):
        return torch.empty(size, dtype=dtype, device=torch.device("cuda", index))
