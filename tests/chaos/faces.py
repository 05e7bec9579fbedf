"""Groups of torch and MLX with the methods of a group of mccl.distributed that traffic.py calls."""

from importlib.util import find_spec
from typing import Any

import cpp
import mpi
import numpy as np
from scenario import Face, Scenario

import mccl


class _Work:
    """The result of a call of a framework, which waits for it."""

    def __init__(self, wait: Any, result: Any) -> None:
        self._wait, self._result = wait, result

    def wait(self) -> Any:
        self._wait()
        return self._result() if callable(self._result) else self._result


class _Group:
    """The common part. A rank that has failed makes no more calls."""

    failure = "the group of a framework"

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @staticmethod
    def _finish(work: _Work, wait: bool) -> Any:
        return work.wait() if wait else work


class TorchGroup(_Group):
    def __init__(self, rank: int, size: int) -> None:
        import torch
        import torch.distributed as dist

        super().__init__(rank, size)
        torch.set_num_threads(1)
        dist.init_process_group("mccl", init_method="mccl://")
        self._torch, self._dist = torch, dist
        self._ops = {
            "sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN,
        }  # fmt: skip

    def all_reduce(self, x: np.ndarray, op: str, wait: bool, timeout: float | None) -> Any:
        tensor = self._torch.from_numpy(x)
        work = self._dist.all_reduce(tensor, self._ops[op], async_op=True)
        return self._finish(_Work(work.wait, x), wait)

    def broadcast(self, x: np.ndarray, root: int, wait: bool, timeout: float | None) -> Any:
        work = self._dist.broadcast(self._torch.from_numpy(x), root, async_op=True)
        return self._finish(_Work(work.wait, x), wait)

    def all_gather(self, x: np.ndarray, wait: bool, timeout: float | None) -> Any:
        out = np.zeros(x.size * self.size, x.dtype)
        parts = list(self._torch.from_numpy(out).chunk(self.size))
        work = self._dist.all_gather(parts, self._torch.from_numpy(x), async_op=True)
        return self._finish(_Work(work.wait, out), wait)

    def barrier(self, wait: bool, timeout: float | None) -> Any:
        work = self._dist.barrier(async_op=True)
        return self._finish(_Work(work.wait, None), wait)

    def send(self, x: np.ndarray, peer: int, tag: int, wait: bool, timeout: float | None) -> Any:
        work = self._dist.isend(self._torch.from_numpy(x), peer, tag=tag)
        return self._finish(_Work(work.wait, None), wait)

    def recv(self, out: np.ndarray, peer: int, tag: int, wait: bool, timeout: float | None) -> Any:
        work = self._dist.irecv(self._torch.from_numpy(out), peer, tag=tag)
        return self._finish(_Work(work.wait, out), wait)


class MlxGroup(_Group):
    def __init__(self, rank: int, size: int) -> None:
        import mlx.core as mx

        import mccl.mlx

        super().__init__(rank, size)
        mx.set_default_device(mx.cpu)
        self._mx, self._ours = mx, mccl.mlx
        self._group = mccl.mlx.init(strict=True)

    def _start(self, array: Any, wait: bool) -> Any:
        self._mx.async_eval(array)
        return self._finish(_Work(lambda: self._mx.eval(array), lambda: np.array(array)), wait)

    def all_reduce(self, x: np.ndarray, op: str, wait: bool, timeout: float | None) -> Any:
        calls = self._mx.distributed
        call = {"sum": calls.all_sum, "max": calls.all_max, "min": calls.all_min}[op]
        return self._start(call(self._mx.array(x), group=self._group), wait)

    def broadcast(self, x: np.ndarray, root: int, wait: bool, timeout: float | None) -> Any:
        return self._start(self._ours.broadcast(self._mx.array(x), root, group=self._group), wait)

    def all_gather(self, x: np.ndarray, wait: bool, timeout: float | None) -> Any:
        call = self._mx.distributed.all_gather
        return self._start(call(self._mx.array(x), group=self._group), wait)

    def barrier(self, wait: bool, timeout: float | None) -> Any:
        self._ours.barrier(self._group)
        return self._finish(_Work(lambda: None, None), wait)

    def send(self, x: np.ndarray, peer: int, tag: int, wait: bool, timeout: float | None) -> Any:
        call = self._mx.distributed.send
        return self._start(call(self._mx.array(x), peer, group=self._group), wait)

    def recv(self, out: np.ndarray, peer: int, tag: int, wait: bool, timeout: float | None) -> Any:
        call = self._mx.distributed.recv_like
        return self._start(call(self._mx.array(out), peer, group=self._group), wait)


def is_missing(face: Face) -> bool:
    """Returns whether the framework is not installed, or the compiler of ranks in C++."""
    if face == Face.CPP:
        return cpp.is_missing()
    if face == Face.MPI:
        return mpi.is_missing()
    modules = {Face.TORCH: "torch", Face.MLX: "mlx"}
    return face in modules and find_spec(modules[face]) is None


def prepare(face: Face) -> None:
    """Imports the framework, so that forked processes need not, or compiles the rank in C++."""
    if is_missing(face):
        return
    if face in (Face.CPP, Face.MPI):
        cpp.prepare()
    if face == Face.TORCH:
        import torch.distributed  # noqa: F401
    elif face == Face.MLX:
        import mlx.core  # noqa: F401


def join(scenario: Scenario, rank: int, root: str) -> Any:
    """Joins the job by the framework of the scenario, and returns its group."""
    settings = {"rank": rank, "world_size": scenario.size, "root": root, "port_base": 0}
    mccl.init(**settings, **scenario.settings)
    group = TorchGroup if scenario.face == Face.TORCH else MlxGroup
    return group(rank, scenario.size)
