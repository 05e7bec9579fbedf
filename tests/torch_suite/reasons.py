"""Why tests of PyTorch's suite are skipped or fail here, without GPUs and with 4 ranks.

A skip for an unlisted reason fails the run, so that no test drops out unnoticed.
"""

SKIPS = {
    r"Need at least \d+ CUDA devices|CUDA is not available": "a test of GPU tensors",
    r"Only Nccl supports|Only NCCL supports|Only N[Cc][Cc][Ll] ": "a test of GPU tensors",
    r"Only Gloo (and|&) N[Cc][Cc][Ll] backend|Only Gloo and NCCL backends": "a test of GPU tensors",
    r"Only Nccl & Gloo backend support DistributedDataParallel": "a test of GPU tensors",
    r"NCCL Batch Send Recv Only|NCCL Send Recv Only": "a test of GPU tensors",
    r"Tests nccl metadata|Coalescing manager currently tests with NCCL only": "a test of NCCL",
    r"one of \{'nccl'\}|Currently failing in NVIDIA": "a test of NCCL",
    r"one of \{'gloo'\}|GLOO Batch Send Recv CPU": "runs in test_as_gloo.py",
    r"Only Gloo backend support sparse|Only gloo backend supports timeouts": (
        "runs in test_as_gloo.py; of the timeouts, what Gloo itself runs on the CPU"
    ),
    r"get_future is only supported on": "runs in test_as_gloo.py",
    r"Only MPI supports": "runs in test_as_mpi.py",
    r"small world size": "needs another number of ranks than 4; skipped on Gloo too",
    r"Test is failing, see|Test is failing, tracking issue|flakiness": "PyTorch skips it itself",
    r"no torchvision": "needs torchvision, which is not a dependency",
}

EXPECTED_FAILURES = {
    "test_ddp_logging_data_cpu": (
        "DDP's logger writes 'custom' for every backend that is not PyTorch's own, and the test "
        "expects the backend's name"
    ),
}
