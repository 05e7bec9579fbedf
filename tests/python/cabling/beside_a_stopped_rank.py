"""On a ring of four, rank 1 stops and rank 2 aborts.

The path from rank 2 to rank 0 may pass through rank 1.
"""

import os
import signal
from pathlib import Path

import numpy as np

import mccl.distributed as md


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rsplit(")")[-1].split()[0] == "T"


world = md.init()
data = np.ones(100_000, np.float32)
world.all_reduce(data)
if world.rank == 1:
    world.send(np.array([os.getpid()]), 2)
    os.kill(os.getpid(), signal.SIGSTOP)
if world.rank == 2:
    process = np.zeros(1, np.int64)
    world.recv(process, 1)
    while not is_stopped(int(process[0])):
        pass
    world.abort("it has had enough")
world.all_reduce(data)
