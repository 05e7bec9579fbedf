"""Rank 0 streams to rank 1, without data in the other direction, until it reads a line."""

import select
import sys

import numpy as np

import mccl.distributed as md

world = md.init()
data = np.zeros(400_000, np.int64)
is_over = False
rounds = 0
while not is_over:
    rounds += 1
    if world.rank == 0:
        is_over = bool(select.select([sys.stdin], [], [], 0)[0])
        data[:] = -1 if is_over else rounds
        world.send(data, 1)
    else:
        world.recv(data, 0)
        is_over = data[0] == -1
        assert is_over or (data == rounds).all(), rounds
    if rounds == 3:
        print("begun", flush=True)
print(rounds, flush=True)
