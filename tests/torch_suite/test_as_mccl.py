from torch_tests import Forking, import_pretending

tests = import_pretending("mccl")


class TestMccl(Forking, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """Everything that is not meant for a backend by name."""

    TESTS = tests
