"""PyTorch's own tests of torch.distributed, as they lie in the installed torch, aimed at MCCL.

Their decorators compare the backend's name with those that PyTorch knows while the module is
imported. A name is therefore pretended for the time of the import, and mccl put in its place after.
"""

import importlib
import os
import sys
from types import ModuleType

RANKS = 4
MODULE = "torch.testing._internal.distributed.distributed_test"


def import_pretending(backend: str) -> ModuleType:
    """A copy of PyTorch's tests that kept those meant for `backend`, and runs them on mccl."""
    os.environ |= {
        "BACKEND": backend,
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
        "MCCL_PORT_BASE": "0",
    }
    from torch.testing._internal.common_distributed import DistTestCases

    import mccl  # noqa: F401  (registers the backend)

    for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
        DistTestCases.backend_feature[feature].add("mccl")
    sys.modules.pop(MODULE, None)
    module = importlib.import_module(MODULE)
    module.BACKEND = "mccl"
    # For the children, which get it from the environment.
    os.environ["BACKEND"] = "mccl"
    return module


class Spawning:
    """Starts the ranks of each test."""

    ONLY = ""
    """A pattern of the names that are collected."""

    def setUp(self):
        super().setUp()
        self._spawn_processes()
