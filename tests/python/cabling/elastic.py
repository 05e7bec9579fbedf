"""Like elastic.cpp, but with NumPy."""

import sys

import mccl.distributed as md

world = md.init()
try:
    world.all_reduce(1)
    print("begun", flush=True)
    while len(sys.argv) == 1:
        world.all_reduce(1)
except md.PeerError:
    world = md.reconfigure(timeout=30)
    world.all_reduce(1)
print(int(world.all_reduce(1)), "ranks")
