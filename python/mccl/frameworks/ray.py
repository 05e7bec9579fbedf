"""Adds the backend "mccl" to the groups of ray.util.collective."""

from __future__ import annotations

import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from ray import get_runtime_context
from ray.experimental import internal_kv
from ray.util import get_node_ip_address
from ray.util.collective import types
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from torch import distributed as dist

from mccl import config, torch_backend
from mccl.torch_names import BACKEND

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPS = {
    types.ReduceOp.SUM: dist.ReduceOp.SUM,
    types.ReduceOp.PRODUCT: dist.ReduceOp.PRODUCT,
    types.ReduceOp.MIN: dist.ReduceOp.MIN,
    types.ReduceOp.MAX: dist.ReduceOp.MAX,
}


def change(collective: ModuleType) -> None:
    """Registers the backend with ray.util.collective."""
    collective.register_collective_backend(BACKEND.upper(), Group)


class Group(BaseGroup):
    """A group of actors or tasks. Ray passes each tensor in a list of its own."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        # Ray's cluster keeps entries beyond the end of a job.
        key = f"mccl/{get_runtime_context().get_job_id()}/{group_name}"
        name = f"ray-{group_name}"
        store = _serve(key) if rank == 0 else _find(key, group_name)
        try:
            self._group, self._part = torch_backend.create_apart(
                store, rank, world_size, None, name
            )
            self.barrier()
        finally:
            # The next group of this name, or the next attempt, publishes another address.
            if rank == 0:
                internal_kv._internal_kv_del(key)

    @classmethod
    def backend(cls) -> str:
        """The name of the backend in Ray."""
        return BACKEND.upper()

    @classmethod
    def check_backend_availability(cls) -> bool:
        """True if MCCL was built for the installed torch."""
        try:
            torch_backend.load()
        except ImportError:
            return False
        return True

    def destroy_group(self) -> None:
        """Leaves the group."""
        self._part.shutdown()

    def allreduce(self, tensor: list, allreduce_options: Any = types.AllReduceOptions) -> None:
        """Reduces the tensor in place."""
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[allreduce_options.reduceOp]
        self._group.allreduce(_tensors(tensor), options).wait()

    def barrier(self, barrier_options: Any = None) -> None:
        """Waits for all ranks."""
        self._group.barrier(dist.BarrierOptions()).wait()

    def reduce(self, tensor: list, reduce_options: Any = types.ReduceOptions) -> None:
        """Reduces the tensor to one rank; the others keep theirs."""
        options = dist.ReduceOptions()
        options.reduceOp = _OPS[reduce_options.reduceOp]
        options.rootRank = reduce_options.root_rank
        self._group.reduce(_tensors(tensor), options).wait()

    def broadcast(self, tensor: list, broadcast_options: Any = types.BroadcastOptions) -> None:
        """Sends one rank's tensor to all."""
        options = dist.BroadcastOptions()
        options.rootRank = broadcast_options.root_rank
        self._group.broadcast(_tensors(tensor), options).wait()

    def allgather(self, tensor_list: list, tensor: list, allgather_options: Any = None) -> None:
        """Gathers all ranks' tensors into the list."""
        self._group.allgather([_tensors(tensor_list[0])], _tensors(tensor)).wait()

    def reducescatter(
        self,
        tensor: list,
        tensor_list: list,
        reducescatter_options: Any = types.ReduceScatterOptions,
    ) -> None:
        """Reduces a list of tensors, one for each rank; this rank gets its own."""
        options = dist.ReduceScatterOptions()
        options.reduceOp = _OPS[reducescatter_options.reduceOp]
        self._group.reduce_scatter(_tensors(tensor), [_tensors(tensor_list[0])], options).wait()

    def send(self, tensor: list, send_options: Any) -> None:
        """Sends a tensor to a rank."""
        self._group.send(_tensors(tensor), send_options.dst_rank, 0).wait()

    def recv(self, tensor: list, recv_options: Any) -> None:
        """Receives a tensor from a rank."""
        self._group.recv(_tensors(tensor), recv_options.src_rank, 0).wait()


def _tensors(given: list[torch.Tensor | NDArray]) -> list[torch.Tensor]:
    """Returns torch tensors in the same memory."""
    return [torch.from_numpy(one) if isinstance(one, np.ndarray) else one for one in given]


def _serve(key: str) -> dist.Store:
    """Starts a store, and publishes its address in Ray's cluster."""
    host = get_node_ip_address()
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    internal_kv._internal_kv_put(key, f"{host} {store.port}")
    return store


def _find(key: str, group_name: str) -> dist.Store:
    """Waits for the address of rank 0's store, and connects to it."""
    name = "connect_timeout"
    patience = float(config.resolved_settings().get(name, config.default_text(name)))
    deadline = time.monotonic() + patience
    while (found := internal_kv._internal_kv_get(key)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"group {group_name!r}: rank 0 did not join within {patience:g} s "
                "(MCCL_CONNECT_TIMEOUT); check that every actor of the group joins it"
            )
        time.sleep(0.02)
    host, port = found.decode().split()
    return dist.TCPStore(host, int(port), is_master=False)
