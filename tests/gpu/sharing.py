"""Two ranks per test, on a GPU each or, on a machine with one GPU, both on that one."""

from __future__ import annotations

import pytest
import torch

ONE_GPU = torch.cuda.device_count() < 2

#: Ways for GPU memory. On one GPU the kernels run twice: as between GPUs joined by NVLink, and as
#: between GPUs on PCIe, which gives 16 bytes each a flag of their own.
WAYS = ["cuda", "auto", "nccl", *(["cuda-pcie"] if ONE_GPU else [])]


def skip_what_needs_two_gpus(way: str) -> None:
    if way == "nccl" and ONE_GPU:
        pytest.skip("needs a GPU per rank: NCCL refuses two ranks on one GPU")


def choose(way: str) -> None:
    """Sets the way; runs on every rank before its group is made."""
    import mccl

    backend, _, joined = way.partition("-")
    options = {"test_only_shared_gpu": joined or "nvlink"} if ONE_GPU else {}
    mccl.init(backend=backend, **options)
