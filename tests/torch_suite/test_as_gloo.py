from torch_tests import Spawning, import_pretending

tests = import_pretending("gloo")


class TestMeantForGloo(Spawning, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """What PyTorch runs on gloo alone, and every backend for host memory can do."""

    ONLY = r"batch_isend_irecv_gloo|sparse_all_reduce_sum$"
