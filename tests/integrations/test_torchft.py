"""torchft's own tests of process groups, on mccl.torchft.ProcessGroupMCCL."""

import threading
from datetime import timedelta
from unittest.mock import patch

import pytest
import torch
from torchft import process_group_test as theirs
from torchft.process_group import ProcessGroup

from mccl.torchft import ProcessGroupMCCL


class TestMCCL(theirs.MultiPgBaseTest):
    BACKEND = "mccl"
    WORLD_SIZE = 3

    @classmethod
    def _create_pg(cls, backend: str) -> ProcessGroup:
        return ProcessGroupMCCL(timeout=timedelta(seconds=10))

    def assertRaisesRegex(self, error: type, pattern: str):  # noqa: N802
        """Adds MCCL's wording to that of Gloo and NCCL, which torchft's tests list."""
        return super().assertRaisesRegex(error, f"{pattern}|rank 2 is gone")

    @theirs.parameterized.expand(theirs._ALL_COLLECTIVES)
    def test_collective(self, collective: str) -> None:
        self._run_parallel(collective)

    @theirs.parameterized.expand(theirs._ALL_COLLECTIVES)
    def test_collective_with_resiliency(self, collective: str) -> None:
        """All ranks end the call that must succeed before one leaves.

        MCCL ends all calls of a group that a rank has left, even one that others have completed.
        """
        function = theirs._COLLECTIVE_TO_FUNC[collective]
        ended = threading.Barrier(self.WORLD_SIZE)
        waited = set()

        def call(pg: ProcessGroup, rank: int, tensor: torch.Tensor) -> None:
            function(pg, rank, tensor)
            if rank not in waited:
                waited.add(rank)
                ended.wait(60)

        with patch.dict(theirs._COLLECTIVE_TO_FUNC, {collective: call}):
            self._run_with_resiliency(collective)


@pytest.fixture
def group_class(monkeypatch):
    monkeypatch.setattr(theirs, "ProcessGroupGloo", ProcessGroupMCCL)


@pytest.mark.parametrize("name", ["test_gloo_apis_0_cpu", "test_functional_collectives"])
def test_alone(group_class, name: str):
    case = theirs.ProcessGroupTest(name)
    case.debug()
