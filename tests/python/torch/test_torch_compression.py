"""Sums between machines that a setting or a group compresses, and calls that stay exact."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from rank_pool import TIMEOUT

CODECS = [
    "fp16",
    pytest.param("bf16", marks=pytest.mark.long),
    "int8",
    "fp8",
    pytest.param("fp8_e5m2", marks=pytest.mark.long),
    pytest.param("int4", marks=pytest.mark.long),
    "topk",
]


def exact_in_float32(count: int, rank: int) -> torch.Tensor:
    """Returns values that no 16-bit float holds, whose sums over ranks are exact in float32."""
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
    run_with_settings(pool, check_broadcast, compression=codec, transport="tcp")


def check_small_sums(rank: int, size: int) -> None:
    for count in (1, 2, 7, 1000, 16383):
        tensor = exact_in_float32(count, rank)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, sum(exact_in_float32(count, peer) for peer in range(size)))


@pytest.mark.parametrize("codec", CODECS)
def test_fault_04_small_sums_are_read_as_they_were_sent(pool, codec):
    run_with_settings(pool, check_small_sums, compression=codec, transport="tcp")


def check_rounded_sums(error: float, rank: int, size: int) -> None:
    """The results are the same on all ranks, and the error is below the bound."""
    for count in (70001, 300000):
        tensor = torch.randn(count, generator=torch.Generator().manual_seed(rank))
        exact = tensor.clone()
        dist.all_reduce(tensor)
        gathered = [torch.empty(count) for _ in range(size)]
        dist.all_gather(gathered, tensor)
        assert all(torch.equal(each, tensor) for each in gathered)
        dist.all_gather(gathered, exact)
        exact = torch.stack(gathered).sum(0)
        found = float((tensor - exact).norm() / exact.norm())
        assert 0 < found < error, found


#: Largest error of a sum of normally distributed numbers, relative to its norm.
ERRORS = {
    "fp16": 1e-3, "bf16": 5e-3, "int8": 2e-2, "fp8": 5e-2, "fp8_e5m2": 1e-1, "int4": 0.3, "topk": 1
}  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_fault_05_the_ring_takes_the_codec_as_every_path_does(pool, codec):
    check = functools.partial(check_rounded_sums, ERRORS[codec])
    for algorithm in ("ring", "auto"):
        settings = {"compression": codec, "algorithm": algorithm, "transport": "tcp"}
        run_with_settings(pool, check, **settings)


def check_groups(rank: int, size: int) -> None:
    from mccl.torch_backend import Options

    ranks = list(range(size))
    rounded = dist.new_group(ranks, pg_options=Options(compression="bf16"))
    exact = dist.new_group(ranks, pg_options=Options(compression="none"))
    usual = dist.new_group(ranks)
    value = 1 + 2.0**-20
    for group, expected in ((rounded, 1.0), (exact, value), (usual, value)):
        tensor = torch.full((100000,), value)
        dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group)
        assert torch.equal(tensor, torch.full((100000,), expected))
    backend = rounded._get_backend(torch.device("cpu"))
    assert backend.bytes_to_sum(torch.full((1000,), value)) == 4000  # too small to be compressed
    tensor, left = torch.full((100000,), value), torch.full((100000,), 7.0)
    assert 200000 <= backend.bytes_to_sum(tensor) < 201000
    backend.all_reduce_keeping(tensor, left, dist.ReduceOp.AVG).wait()
    assert torch.equal(tensor, torch.ones(100000))
    assert torch.equal(left, torch.full((100000,), value - 1))
    whole, part = torch.full((100000 * size,), value), torch.empty(100000)
    kept = torch.empty_like(whole)
    backend.reduce_scatter_keeping(part, whole, kept, dist.ReduceOp.AVG).wait()
    assert torch.equal(part, torch.ones(100000))
    assert torch.equal(kept, torch.full((100000 * size,), value - 1))
    with pytest.raises(ValueError, match="did you mean int8"):
        dist.new_group(ranks, pg_options=Options(compression="int9"))
    for wrong in (Options(topk_ratio=0.5), Options(compression="int8", topk_ratio=0.5)):
        with pytest.raises(ValueError, match="topk_ratio requires compression"):
            dist.new_group(ranks, pg_options=wrong)


def test_a_group_may_have_its_own_codec(pool):
    run_with_settings(pool, check_groups, compression="none", transport="tcp")


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
