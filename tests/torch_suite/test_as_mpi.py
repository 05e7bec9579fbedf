from torch_tests import Forking, import_pretending

tests = import_pretending("mpi")


class TestMeantForMpi(Forking, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """What PyTorch runs on MPI alone."""

    TESTS = tests
    ONLY = r"all_to_all(?!.*cuda)"
