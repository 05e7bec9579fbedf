"""Settings of tests with two ranks, which use one GPU each, or share a machine's only GPU."""

from __future__ import annotations

import pytest
import torch

ONE_GPU = torch.cuda.device_count() < 2

#: Ways to communicate on GPU memory. On one GPU the kernels run in two modes: as between GPUs
#: joined by NVLink, and as between GPUs on PCIe, where every 16 bytes carry their own flag.
WAYS = ["cuda", "auto", "nccl", *(["cuda-pcie"] if ONE_GPU else [])]


def skip_what_needs_two_gpus(way: str) -> None:
    if way == "nccl" and ONE_GPU:
        pytest.skip("needs a GPU per rank: NCCL refuses two ranks on one GPU")


def choose(way: str) -> None:
    """Selects the way. Runs on every rank before its group is made."""
    import mccl

    backend, _, joined = way.partition("-")
    options = {"test_only_shared_gpu": joined or "nvlink"} if ONE_GPU else {}
    mccl.init(backend=backend, **options)
