"""Calls on a ring of four until one fails.

Sums; messages between ranks that no cable joins; or messages elsewhere than between ranks 1 and 2.
"""

import sys

import numpy as np

import mccl.distributed as md

world = md.init()
data = np.ones(100_000, np.float32)
world.barrier()
print("begun", flush=True)
while True:
    if sys.argv[1] == "sums":
        world.all_reduce(data)
        continue
    other = (world.rank + 2) % 4 if sys.argv[1] == "messages" else world.rank ^ 1
    sent = world.send(data, other, wait=False)
    world.recv(data.copy(), other)
    sent.wait()
