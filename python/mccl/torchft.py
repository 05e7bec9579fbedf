"""A process group for torchft, which replaces it whenever the set of replicas changes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch.distributed import ProcessGroup
from torchft.process_group import ProcessGroupWrapper

from . import config, torch_backend

if TYPE_CHECKING:
    from torch.distributed import Store

_CUSTOM = ProcessGroup.BackendType.CUSTOM


class ProcessGroupMCCL(ProcessGroupWrapper):
    """A process group for ``torchft.Manager(pg=...)``.

    Each quorum gets its own connections on a free port, regardless of MCCL_PORT_BASE, because the
    connections of the previous quorum may not be closed yet.
    """

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        shim = torch_backend.load()
        backend = shim.create(
            store=store,
            rank=rank,
            size=world_size,
            timeout=self._timeout,
            name=f"torchft-{self._uuid}",
            # -1: no rank of this group belongs to torch's default group.
            global_ranks=list(range(world_size)),
            members=[-1] * world_size,
            settings=config.resolved_settings() | {"port_base": "0"},
            elsewhere=False,
        )
        group = ProcessGroup(store, rank, world_size)
        group._set_default_backend(_CUSTOM)
        for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
            group._register_backend(torch.device(device), _CUSTOM, backend)
        self._backend = backend
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
