from torch_tests import Forking, import_pretending

tests = import_pretending("mpi")


class TestMeantForMpi(Forking, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """Tests that PyTorch runs only on MPI."""

    TESTS = tests
    ONLY = r"all_to_all(?!.*cuda)"
