"""Sends a message between every pair of ranks and runs collectives on all groups of 2 or more."""

import itertools

import numpy as np

import mccl.distributed as md

world = md.init()
rank, size = world.rank, world.size

for source in range(size):
    for target in range(size):
        if source == target:
            continue
        for count in (1, 300_000):
            if rank == source:
                world.send(np.full(count, 10 * source + target, np.int32), target)
            elif rank == target:
                got = np.empty(count, np.int32)
                world.recv(got, source)
                assert (got == 10 * source + target).all(), (source, target, got)

for members in itertools.chain.from_iterable(
    itertools.combinations(range(size), n) for n in range(2, size + 1)
):
    group = world.split(0 if rank in members else -1, rank)
    if rank not in members:
        continue
    for count in (3, 100_000):
        total = group.all_reduce(np.full(count, float(rank), np.float32))
        assert (total == sum(members)).all(), (members, total)
    gathered = group.all_gather(np.array([rank], np.int64))
    assert gathered.ravel().tolist() == list(members), (members, gathered)

print(f"rank {rank}: all pairs, all groups")
