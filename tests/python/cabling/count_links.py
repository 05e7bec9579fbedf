"""Prints how many connections to each neighbour carried a share of a series of all-reduces."""

import re
import subprocess
from collections import Counter

import numpy as np

import mccl.distributed as md

SHARE = 4 << 20

world = md.init()
data = np.ones(4 << 20, np.float32)
for _ in range(8):
    world.all_reduce(data)
world.barrier()
table = subprocess.run(
    ["ss", "-tniHO", "state", "established"], capture_output=True, text=True, check=True
).stdout
used: Counter[str] = Counter()
for line in table.splitlines():
    acknowledged = re.search(r"bytes_acked:(\d+)", line)
    if acknowledged and int(acknowledged[1]) > SHARE:
        used[line.split()[3].rsplit(":", 1)[0]] += 1
world.barrier()
print("links with data to each neighbour:", sorted(used.values()))
