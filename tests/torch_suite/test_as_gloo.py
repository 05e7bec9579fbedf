from torch_tests import Forking, import_pretending

tests = import_pretending("gloo")


class TestMeantForGloo(Forking, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """Tests that PyTorch runs only on gloo, but that any backend for host memory can pass."""

    TESTS = tests
    ONLY = (
        r"batch_isend_irecv_gloo|sparse_all_reduce_sum$|all_reduce_coalesced|monitored_barrier_gloo"
        r"|accumulate_gradients|no_sync|get_future|scatter_object_list|barrier_timeout_full_group"
    )
