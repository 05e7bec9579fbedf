"""Ranks 0 and 2 exchange messages through rank 1, which has already shut down."""

import time

import numpy as np

import mccl.distributed as md

world = md.init()
world.barrier()
if world.rank == 1:
    md.shutdown()
    print("1: done")
else:
    other = 2 - world.rank
    data = np.arange(50_000, dtype=np.float32)
    for i in range(200):
        time.sleep(0.002)  # keeps messages in flight long after rank 1 has shut down
        if world.rank == 0:
            world.send(data + i, other)
        else:
            got = np.empty_like(data)
            world.recv(got, other)
            assert (got == data + i).all()
    print(f"{world.rank}: 200 messages")
