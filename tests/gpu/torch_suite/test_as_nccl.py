"""Runs PyTorch's own torch.distributed tests for NCCL on mccl, with two GPUs."""

from torch_tests import Forking, import_pretending

tests = import_pretending("nccl", ranks=2)


class TestMeantForNccl(Forking, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """All tests that PyTorch runs on NCCL or on every backend for GPUs."""

    TESTS = tests
