"""A process group for torchft, which replaces it whenever the set of replicas changes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from torchft.process_group import ProcessGroupWrapper

from . import torch_backend

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup, Store


class ProcessGroupMCCL(ProcessGroupWrapper):
    """A process group for ``torchft.Manager(pg=...)``.

    Each quorum gets its own connections on a free port, regardless of MCCL_PORT_BASE, because the
    connections of the previous quorum may not be closed yet.
    """

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        name = f"torchft-{self._uuid}"
        group, self._backend = torch_backend.create_apart(
            store, rank, world_size, self._timeout, name
        )
        return group

    def abort(self, errored: bool = True) -> None:
        """Ends all calls of the current group with an error on every rank, and leaves the group."""
        if self._pg is not None:
            self._backend.abort()
        self.shutdown()
        super().abort(errored)

    def shutdown(self) -> None:
        """Leaves the current group, whose later calls end with an error on the other ranks."""
        if self._pg is not None:
            self._backend.shutdown()
            self._pg = None
            del self._backend

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of later calls on this group and on later groups."""
        super().set_timeout(timeout)
        if self._pg is not None:
            self._backend._set_default_timeout(timeout)

    def getBackendName(self) -> str:  # noqa: N802
        """The name that torchft registers the group under."""
        return "torchft-mccl"
