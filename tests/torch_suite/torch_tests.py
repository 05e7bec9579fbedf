"""PyTorch's own torch.distributed tests, taken from the installed torch and run on MCCL.

On import, the tests' decorators compare the backend's name with the names that PyTorch knows. The
module is therefore imported under a known name, which mccl's own replaces afterwards.
"""

import importlib
import os
import sys
from types import ModuleType

import torch

RANKS = 4
MODULE = "torch.testing._internal.distributed.distributed_test"


class AlsoKnownAs(str):
    """A backend's name that also equals another one, for the conditions inside the tests."""

    def __new__(cls, name: str, other: str) -> "AlsoKnownAs":
        self = super().__new__(cls, name)
        self.names = (name, other)
        return self

    def __eq__(self, name: object) -> bool:
        return name in self.names

    def __ne__(self, name: object) -> bool:
        return name not in self.names

    __hash__ = str.__hash__


def import_pretending(backend: str, ranks: int = RANKS) -> ModuleType:
    """Imports a copy of PyTorch's tests that keeps those for `backend` and runs them on mccl."""
    os.environ |= {
        "BACKEND": backend,
        "WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
        "MCCL_PORT_BASE": "0",
    }
    from torch.testing._internal.common_distributed import DistTestCases

    import mccl  # noqa: F401  (registers the backend)

    for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
        DistTestCases.backend_feature[feature].add("mccl")
    sys.modules.pop(MODULE, None)
    module = importlib.import_module(MODULE)
    module.BACKEND = AlsoKnownAs("mccl", backend)
    # Child processes read the backend's name from the environment.
    os.environ["BACKEND"] = "mccl"
    return module


class Forking:
    """Starts the ranks of each test by fork, so that none of them imports torch again."""

    ONLY = ""
    """A pattern of the names that are collected."""

    TESTS: ModuleType
    """The copy of PyTorch's tests that the class is made of."""

    def setUp(self):
        super().setUp()
        # Ranks unpickle a test's objects through sys.modules, which must hold their own copy of the
        # module.
        sys.modules[MODULE] = self.TESTS
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
