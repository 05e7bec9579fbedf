"""Repeats calls on a ring of four ranks until one fails.

The argument selects the calls. "sums": all-reduces. "messages": messages between ranks that no
cable joins. Any other word: messages between ranks 0 and 1, and between ranks 2 and 3.
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
