from torch_tests import Forking, import_pretending

tests = import_pretending("mccl")


class TestMccl(Forking, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """All tests that are not restricted to a named backend."""

    TESTS = tests
