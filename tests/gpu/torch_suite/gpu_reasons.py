"""Why tests of PyTorch's suite are skipped or left out on two GPUs with two ranks.

A skip for an unlisted reason fails the run, so that no test drops out unnoticed.
"""

SKIPS = {
    r"Need at least [3-8] CUDA devices|requires [3-8] GPUs": "more than two GPUs",
    r"small world size|odd world size|world size of 4": "more than two ranks",
    r"[Nn][Cc][Cc][Ll] does not support|Nccl send/recv tested|NCCL send/recv tested": (
        "of host memory: `make test-torch-suite` runs it"
    ),
    r"Gloo-only|Only [Gg]loo|GLOO Batch Send Recv CPU|one of \{'gloo'\}": (
        "of host memory: `make test-torch-suite` runs it"
    ),
    r"Only MPI supports": "of host memory: `make test-torch-suite` runs it",
    r"Test is failing, see|Test is failing, tracking issue|flakiness|Currently failing": (
        "PyTorch skips it itself"
    ),
    r"this machine has no CUDA GPU": "of GPUs",
    r"missing import|no torchvision|torchvision": "a package that is not a dependency",
}

LEFT_OUT = {
    "test_monitored_barrier_allreduce_hang": "makes a group of NCCL, and waits for NCCL's error",
    "test_nccl_high_priority_stream": "makes a ProcessGroupNCCL itself",
    "test_ddp_profiling_execution_trace": "requires that the backend's name is nccl",
}

TO_ITSELF = "sends messages from a rank to itself, which MCCL refuses"

EXPECTED_FAILURES = {
    "test_batch_isend_irecv_nccl": TO_ITSELF,
    "test_batch_isend_irecv_self_nccl": TO_ITSELF,
}
