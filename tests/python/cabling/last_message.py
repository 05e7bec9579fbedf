"""The last rank sends two messages to rank 0, the second when it reads a line, and leaves. Rank 0
checks them. The others leave when they read a line.
"""

import sys

import numpy as np

import mccl.distributed as md

COUNT = 500

world = md.init()
rank, last = world.rank, world.size - 1


def receive(factor: int) -> None:
    received = np.zeros(COUNT, dtype=np.int64)
    world.recv(received, last)
    assert (received == factor * np.arange(COUNT)).all()


if rank == last:
    world.send(np.arange(COUNT, dtype=np.int64), 0)
elif rank == 0:
    receive(1)
world.barrier()
print("begun", flush=True)
if rank == 0:
    receive(2)
    print("heard", flush=True)
else:
    sys.stdin.readline()
    if rank == last:
        world.send(2 * np.arange(COUNT, dtype=np.int64), 0)
