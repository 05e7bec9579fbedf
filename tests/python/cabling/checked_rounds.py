"""Checks sums of all ranks and messages to the farthest rank, until rank 0 reads a line.

Prints a line after the first three rounds, and the number of rounds at the end.
"""

import select
import sys

import numpy as np

import mccl.distributed as md

COUNT = 300_000

world = md.init()
rank, size = world.rank, world.size
other = (rank + size // 2) % size
ramp = np.arange(COUNT, dtype=np.int64)
received = np.empty_like(ramp)
rounds = 0
is_over = False
while not is_over:
    rounds += 1
    asked = rank == 0 and bool(select.select([sys.stdin], [], [], 0)[0])
    is_over = bool(world.all_reduce(np.array([asked], np.int64))[0])
    total = world.all_reduce(ramp * (rank + rounds))
    assert (total == ramp * (size * (size - 1) // 2 + size * rounds)).all(), rounds
    sent = world.send(ramp + rounds * rank, other, wait=False)
    world.recv(received, other)
    assert (received == ramp + rounds * other).all(), rounds
    sent.wait()
    if rounds == 3:
        print("begun", flush=True)
print(rounds, flush=True)
