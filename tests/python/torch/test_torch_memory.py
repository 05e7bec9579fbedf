"""The backend's GPU memory functions without a GPU: they refuse, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu tests it with GPUs")


def check_without_a_gpu() -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    where = torch.device("cuda:0")
    assert not backend.supports_tensor_alloc(where)
    assert isinstance(backend.mem_allocator, torch._C._cuda_CUDAAllocator)
    with pytest.raises(ValueError, match=r"allocate_tensor: expected the CPU or a CUDA device"):
        backend.allocate_tensor(10, dtype=torch.float32, device=torch.device("meta"))
    with pytest.raises(ValueError, match=r"allocate_tensor: the size is negative: -1"):
        backend.allocate_tensor(-1, dtype=torch.float32, device=torch.device("cpu"))
    data = torch.ones(10)
    dist.all_reduce(data)
    assert data.eq(dist.get_world_size()).all()


@NO_GPU
def test_without_a_gpu_only_what_needs_one_is_refused(pool):
    pool.run(check_without_a_gpu)
