from torch_tests import Spawning, import_pretending

tests = import_pretending("mpi")


class TestMeantForMpi(Spawning, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """What PyTorch runs on MPI alone."""

    ONLY = r"all_to_all(?!.*cuda)"
