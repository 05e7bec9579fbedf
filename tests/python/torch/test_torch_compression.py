"""What the setting of a lossy codec must leave exact. No codec has an effect yet."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from rank_pool import TIMEOUT

CODECS = ["fp16", "topk"]


def exact_in_float32(count: int, rank: int) -> torch.Tensor:
    """Values that no 16-bit float holds, whose sums over a few ranks float32 holds exactly."""
    return 1 + (torch.arange(count) * 5 + rank * 3) % 1021 * 2.0**-20


def check_with_settings(path: str, rank: int, size: int, settings: dict, check) -> None:
    import mccl

    mccl.init(port_base=0, **settings)
    try:
        store = dist.FileStore(path, size)
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        assert mccl.get_config().compression == settings["compression"]
        check(rank, size)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        mccl.init()


def run_with_settings(pool, check, **settings) -> None:
    path = pool.store_path()
    arguments = [(path, rank, pool.size, settings, check) for rank in range(pool.size)]
    pool.run_each(check_with_settings, arguments)


def check_broadcast(rank: int, size: int) -> None:
    for count in (1, 1000, 300000):
        for root in range(size):
            tensor = exact_in_float32(count, rank)
            dist.broadcast(tensor, root)
            assert torch.equal(tensor, exact_in_float32(count, root))


@pytest.mark.parametrize("codec", CODECS)
def test_fault_02_a_broadcast_is_never_lossy(pool, codec):
    run_with_settings(pool, check_broadcast, compression=codec)


def check_sums(counts: tuple[int, ...], size: int, rank: int) -> None:
    for count in counts:
        tensor = exact_in_float32(count, rank)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, sum(exact_in_float32(count, peer) for peer in range(size)))


def check_small_sums(rank: int, size: int) -> None:
    check_sums((1, 2, 7, 1000, 16383), size, rank)


def check_ring_sums(rank: int, size: int) -> None:
    check_sums((5, 70001, 1000000), size, rank)


@pytest.mark.parametrize("codec", CODECS)
def test_fault_04_small_sums_are_read_as_they_were_sent(pool, codec):
    run_with_settings(pool, check_small_sums, compression=codec)


@pytest.mark.parametrize("codec", CODECS)
def test_fault_05_the_ring_takes_the_codec_as_every_path_does(pool, codec):
    for algorithm in ("ring", "ring_both"):
        run_with_settings(pool, check_ring_sums, compression=codec, algorithm=algorithm)


def check_one_address(rank: int, size: int) -> None:
    memory = torch.zeros(100000)
    for round_, count in enumerate((100000, 100000, 1000, 99999, 1000, 100000)):
        for dtype in (torch.float32, torch.int32, torch.float32):
            tensor = memory.view(dtype)[:count]
            assert tensor.data_ptr() == memory.data_ptr()
            mine = [(torch.arange(count) + round_ + peer).to(dtype) for peer in range(size)]
            tensor.copy_(mine[rank])
            dist.all_reduce(tensor)
            assert torch.equal(tensor, sum(mine))
            tensor.copy_(mine[rank])
            dist.broadcast(tensor, round_ % size)
            assert torch.equal(tensor, mine[round_ % size])


@pytest.mark.parametrize("codec", ["none", *CODECS])
def test_fault_07_an_address_that_is_used_again_carries_nothing_over(pool, codec):
    run_with_settings(pool, check_one_address, compression=codec)
