import torch.distributed as dist
from torch_tests import Forking, import_pretending

tests = import_pretending("gloo")


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier without its condition on the backend's name."""
    group = group or dist.group.WORLD
    if dist.get_rank(group) < 0:
        return
    arguments = {} if timeout is None else {"timeout": timeout}
    group.monitored_barrier(wait_all_ranks=wait_all_ranks, **arguments)


class TestMeantForGloo(Forking, tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """What PyTorch runs on gloo alone, and every backend for host memory can do."""

    TESTS = tests
    ONLY = (
        r"batch_isend_irecv_gloo|sparse_all_reduce_sum$|all_reduce_coalesced|monitored_barrier_gloo"
        r"|accumulate_gradients|no_sync|get_future|scatter_object_list|barrier_timeout_full_group"
    )

    def setUp(self):
        dist.monitored_barrier = monitored_barrier
        super().setUp()
