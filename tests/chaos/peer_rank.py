"""One rank of a small job of peer_libraries.py.

    PEER_RANK=0 peer_rank.py SYSTEM FAULT FOLDER ROOT

The rank calls all_reduce without end, and commits its own faults when peer_libraries.py asks for
it. FOLDER holds the facts that both share. After an error the rank ends, like a program that
catches none.
"""

import itertools
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

SIZE, VICTIM = 3, 1
COUNT = 16384  # floats, 64 KiB
#: Timeout in seconds of the call that a rank does not make, where the system has one.
TIMEOUT = 10
#: Seconds after which a rank ends in any case.
LIFETIME = 180
#: Facts about a rank. Times are those of the monotonic clock, which all processes share.
FACTS = np.dtype(
    [
        ("pid", "i8"),
        ("calls", "i8"),  # calls that have returned; 1 if it only receives
        ("wrong", "i8"),  # results that were wrong
        ("error", "f8"),  # time of its error; the file RANK.error has the text
        ("go", "i8"),  # 1 if it must commit the fault
        ("fault", "f8"),  # time at which it has committed the fault
    ]
)


class Mccl:
    def __init__(self, rank: int, fault: str, root: str) -> None:
        import mccl.distributed as dist

        timeout = {"timeout": TIMEOUT} if fault == "late" else {}
        self._world = dist.init(rank=rank, size=SIZE, root=root, port_base=0, **timeout)

    def all_reduce(self, x: np.ndarray) -> np.ndarray:
        return self._world.all_reduce(x)

    def receive(self) -> None:
        self._world.recv(np.zeros(COUNT, np.float32), VICTIM)


class Gloo:
    def __init__(self, rank: int, fault: str, root: str) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        timeout = {"timeout": timedelta(seconds=TIMEOUT)} if fault == "late" else {}
        dist.init_process_group(
            "gloo", init_method=f"tcp://{root}", rank=rank, world_size=SIZE, **timeout
        )
        self._torch, self._dist = torch, dist

    def all_reduce(self, x: np.ndarray) -> np.ndarray:
        tensor = self._torch.from_numpy(x)
        self._dist.all_reduce(tensor)
        return tensor.numpy()

    def receive(self) -> None:
        self._dist.recv(self._torch.zeros(COUNT), VICTIM)


class Mlx:
    def __init__(self, rank: int, fault: str, root: str) -> None:
        import mlx.core as mx

        mx.set_default_device(mx.cpu)
        self._group = mx.distributed.init(strict=True, backend="ring")
        self._mx = mx

    def all_reduce(self, x: np.ndarray) -> np.ndarray:
        result = self._mx.distributed.all_sum(self._mx.array(x), group=self._group)
        self._mx.eval(result)  # np.array() alone ignores an error and returns other bytes
        return np.array(result)

    def receive(self) -> None:
        mx = self._mx
        mx.eval(mx.distributed.recv((COUNT,), mx.float32, VICTIM, group=self._group))


class OpenMpi:
    def __init__(self, rank: int, fault: str, root: str) -> None:
        from mpi4py import MPI

        self._world = MPI.COMM_WORLD

    def all_reduce(self, x: np.ndarray) -> np.ndarray:
        out = np.empty_like(x)
        self._world.Allreduce(x, out)
        return out

    def receive(self) -> None:
        self._world.Recv(np.zeros(COUNT, np.float32), VICTIM)


GROUPS = {"mccl": Mccl, "gloo": Gloo, "mlx": Mlx, "openmpi": OpenMpi}


def live(group: Any, rank: int, fault: str, fact: Any) -> None:
    if fault == "receive":
        fact["calls"] = 1
        time.sleep(LIFETIME) if rank == VICTIM else group.receive()
        fact["wrong"] = 1  # nothing was sent
        return
    base = (np.arange(COUNT) % 97).astype(np.float32)
    for step in itertools.count():
        if fact["go"]:
            commit(group, fault, fact)
        result = group.all_reduce(base + (rank + step % 7))
        fact["wrong"] += not np.array_equal(result, SIZE * base + 3 * (1 + step % 7))
        fact["calls"] += 1


def commit(group: Any, fault: str, fact: Any) -> None:
    fact["fault"], fact["go"] = time.monotonic(), 0
    if fault == "exit":
        os._exit(1)
    elif fault == "late":
        time.sleep(LIFETIME)
    elif fault == "mismatch":
        group.all_reduce(np.ones(COUNT // 2, np.float32))
        fact["wrong"] += 1


def main() -> None:
    system, fault, folder, root = sys.argv[1:]
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PEER_RANK"])
    fact = np.memmap(f"{folder}/facts", FACTS, "r+")[rank]
    fact["pid"] = os.getpid()
    signal.alarm(LIFETIME)
    try:
        live(GROUPS[system](rank, fault, root), rank, fault, fact)
    except Exception as error:
        at = time.monotonic()
        Path(folder, f"{rank}.error").write_text(f"{type(error).__name__}: {error}")
        fact["error"] = at
        raise


if __name__ == "__main__":
    main()
