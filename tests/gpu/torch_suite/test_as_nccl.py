"""PyTorch's own tests of torch.distributed that it runs by NCCL, on mccl and two GPUs."""

from torch_tests import Forking, import_pretending

tests = import_pretending("nccl", ranks=2)


class TestMeantForNccl(Forking, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """Everything that PyTorch runs on NCCL, and on every backend for GPUs."""

    TESTS = tests
