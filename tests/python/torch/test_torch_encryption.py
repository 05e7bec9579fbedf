"""Encrypted groups of torch."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from rank_pool import TIMEOUT, RankPool, end_group

KEY = secrets.token_hex(32)


@pytest.fixture(scope="module")
def pair():
    ranks = RankPool(2)
    yield ranks
    ranks.close()


def train_encrypted(path: str, key: str, rank: int, size: int) -> bytes:
    """Trains a small model, and returns what passed through torch's store."""
    import mccl

    mccl.init(port_base=0, transport="tcp", encryption="on", job_key=key)
    try:
        store = dist.FileStore(path, size)
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
        for step in range(3):
            model(torch.full((4, 300), float(rank + step))).sum().backward()
        whole = torch.stack([p.grad.sum() for p in model.parameters()])
        everyone = [torch.empty_like(whole) for _ in range(size)]
        dist.all_gather(everyone, whole)
        assert all(torch.equal(each, whole) for each in everyone)
        dist.barrier()
        return Path(path).read_bytes()
    finally:
        end_group()
        mccl.init()


def test_a_model_trains_and_the_store_holds_no_key(pair):
    path = pair.store_path()
    for stored in pair.run_each(train_encrypted, [(path, KEY, rank, 2) for rank in range(2)]):
        assert stored
        assert KEY.encode() not in stored
        assert bytes.fromhex(KEY) not in stored
