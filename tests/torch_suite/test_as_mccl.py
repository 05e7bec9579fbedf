from torch_tests import Spawning, import_pretending

tests = import_pretending("mccl")


class TestMccl(Spawning, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """Everything that is not meant for a backend by name."""
