"""Compressed gradients of models on a GPU: two ranks, which may share one GPU."""

from __future__ import annotations

import io

import pytest
import torch
import torch.distributed as dist
from rank_pool import TIMEOUT, RankPool
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WHERE = torch.device("cuda", 0)


@pytest.fixture(scope="module")
def pair():
    ranks = RankPool(2)
    yield ranks
    ranks.close()


def in_job(path: str, rank: int, size: int, check, arguments) -> None:
    """Runs a check on ranks that use TCP.

    Between ranks that share memory the engine never compresses.
    """
    import mccl

    mccl.init(port_base=0, backend="native", transport="tcp", compression_min_bytes=1024)
    try:
        if WHERE.type == "cuda":
            torch.cuda.set_device(WHERE)
        store = dist.FileStore(path, size)
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        check(rank, size, *arguments)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        mccl.init()


def run(pair, check, *arguments) -> None:
    path = pair.store_path()
    pair.run_each(in_job, [(path, rank, pair.size, check, arguments) for rank in range(pair.size)])


class Slopes(nn.Module):
    """A module whose gradients are the tensors that it is called with."""

    def __init__(self, shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.slopes = nn.ParameterList(torch.zeros(shape, dtype=dtype) for shape in shapes)

    def forward(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        products = [
            (slope * gradient.conj()).real.sum() if slope.is_complex() else (slope * gradient).sum()
            for slope, gradient in zip(self.slopes, gradients, strict=True)
        ]
        return torch.stack([product.double() for product in products]).sum()


def keep_default_stream_busy() -> None:
    """Delays the default stream.

    Work queued there by mistake then finishes too late for the check.
    """
    with torch.cuda.stream(torch.cuda.default_stream(WHERE)):
        torch.cuda._sleep(100_000_000)


def backward(module: nn.Module, gradients: list[torch.Tensor], side: torch.cuda.Stream) -> list:
    """Runs a backward pass on a stream and returns the gradients as that stream sees them."""
    keep_default_stream_busy()
    with torch.cuda.stream(side):
        module.zero_grad()
        module([each.to(WHERE, non_blocking=True) for each in gradients]).backward()
        seen = [
            (each.grad.full_tensor() if hasattr(each.grad, "full_tensor") else each.grad).clone()
            for each in module.parameters()
        ]
    side.synchronize()
    return [each.cpu() for each in seen]


def whole_numbers(
    shapes: list[tuple[int, ...]], rank: int, step: int, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """Returns gradients whose averages over two ranks are exact in every 16-bit codec."""
    return [
        ((torch.arange(torch.Size(shape).numel()) + rank + step + place) % 7).view(shape).to(dtype)
        for place, shape in enumerate(shapes)
    ]


MANY = [(500,)] * 32 + [(64, 64), (300, 20)]


def check_side_stream(rank: int, size: int, codec: str, built_on_side: bool) -> None:
    import mccl.hooks

    side = torch.cuda.Stream(WHERE)
    with torch.cuda.stream(side if built_on_side else torch.cuda.default_stream(WHERE)):
        ddp = DistributedDataParallel(Slopes(MANY).to(WHERE), bucket_cap_mb=0.02)
        mccl.hooks.compress(ddp, codec)
    torch.cuda.synchronize()
    for step in range(6):
        seen = backward(ddp, whole_numbers(MANY, rank, step), side)
        ranks = [whole_numbers(MANY, each, step) for each in range(size)]
        wrong = [
            place
            for place, mine in enumerate(seen)
            # powersgd approximates gradients with two or more dimensions
            if (codec != "powersgd" or mine.dim() < 2)
            and not torch.equal(mine, sum(each[place] for each in ranks) / size)
        ]
        assert not wrong, f"step {step}: gradients {wrong} of {len(seen)}"


@pytest.mark.parametrize("built_on_side", [True, False])
@pytest.mark.parametrize("codec", ["bf16", "powersgd"])
def test_a_backward_on_a_side_stream_sees_its_gradients(pair, codec, built_on_side):
    run(pair, check_side_stream, codec, built_on_side)


def check_sharded_side_stream(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import mccl.hooks

    shapes = [(500,)] * 4 + [(64, 64), (301, 20)]
    side = torch.cuda.Stream(WHERE)
    module = Slopes(shapes).to(WHERE)
    fully_shard(module, mesh=init_device_mesh("cuda", (size,)))
    state = mccl.hooks.compress(module, "bf16")
    for step in range(6):
        seen = backward(module, whole_numbers(shapes, rank, step), side)
        ranks = [whole_numbers(shapes, each, step) for each in range(size)]
        for place, mine in enumerate(seen):
            assert torch.equal(mine, sum(each[place] for each in ranks) / size), (step, place)
    assert state.statistics.ratio > 1.5
    assert state.step == 6


def test_a_sharded_backward_on_a_side_stream_sees_its_gradients(pair):
    run(pair, check_sharded_side_stream)


def check_same_as_host(rank: int, size: int, codec: str, options: dict, dtype: torch.dtype) -> None:
    """Uses a new stream in each step, so residuals are allocated and read on different streams."""
    import mccl.hooks

    shapes = [(128, 64), (100,)]
    on_gpu = DistributedDataParallel(Slopes(shapes, dtype).to(WHERE))
    on_host = DistributedDataParallel(Slopes(shapes, dtype))
    state = mccl.hooks.compress(on_gpu, codec, **options)
    expected = mccl.hooks.compress(on_host, codec, **options)
    generator = torch.Generator().manual_seed(rank)
    for step in range(8):
        gradients = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
        seen = backward(on_gpu, gradients, torch.cuda.Stream(WHERE))
        on_host.zero_grad()
        on_host(gradients).backward()
        for mine, other in zip(seen, on_host.parameters(), strict=True):
            assert torch.equal(mine, other.grad), step
    mine, other = state.residuals["slopes.0"], expected.residuals["slopes.0"]
    assert torch.equal(mine.cpu(), other) and mine.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("codec", "options"), [("int4", {"warm_up": 2}), ("topk", {"momentum": 0.5})]
)
def test_a_gpu_sends_what_the_host_would(pair, codec, options, dtype):
    run(pair, check_same_as_host, codec, options, dtype)


def check_powersgd_streams(rank: int, size: int) -> None:
    """Residuals lie on the GPU and are used on another stream in each step."""
    import mccl.hooks

    shapes = [(128, 64), (256, 256)]
    ddp = DistributedDataParallel(Slopes(shapes).to(WHERE))
    state = mccl.hooks.compress(ddp, "powersgd", rank=2)
    generator = torch.Generator().manual_seed(rank)
    applied, wanted = ([torch.zeros(shape) for shape in shapes] for _ in range(2))
    for _ in range(20):
        gradients = [torch.randn(shape, generator=generator) for shape in shapes]
        seen = backward(ddp, gradients, torch.cuda.Stream(WHERE))
        for place, each in enumerate(seen):
            applied[place] += each
            wanted[place] += gradients[place]
    for place, each in enumerate(wanted):
        missing = each - state.residuals[f"slopes.{place}"].cpu()
        dist.all_reduce(missing, dist.ReduceOp.AVG)
        torch.testing.assert_close(applied[place], missing, rtol=1e-3, atol=1e-3)


def test_powersgd_loses_nothing_between_streams(pair):
    run(pair, check_powersgd_streams)


def check_loading(rank: int, size: int, codec: str, options: dict, place: str) -> None:
    import mccl.hooks

    shapes = [(128, 64), (100,)]

    def hooked() -> tuple[DistributedDataParallel, object]:
        ddp = DistributedDataParallel(Slopes(shapes).to(WHERE))
        return ddp, mccl.hooks.compress(ddp, codec, **options)

    side = torch.cuda.Stream(WHERE)
    whole, state = hooked()
    for step in range(3):
        backward(whole, random_gradients(shapes, rank, step), side)
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    again, resumed = hooked()
    file.seek(0)
    resumed.load_state_dict(torch.load(file, map_location=place))
    torch.cuda.synchronize()
    for step in range(3, 6):
        gradients = random_gradients(shapes, rank, step)
        mine, other = backward(again, gradients, side), backward(whole, gradients, side)
        assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True)), step


def random_gradients(shapes: list[tuple[int, ...]], rank: int, step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("codec", "options"), [("int8", {}), ("topk", {"momentum": 0.5}), ("powersgd", {})]
)
def test_a_state_may_be_loaded_to_any_device(pair, codec, options, place):
    run(pair, check_loading, codec, options, place)


def check_types(rank: int, size: int, codec: str, dtype: torch.dtype) -> None:
    import mccl.hooks

    shapes = [(128, 64), (100,)]
    ddp = DistributedDataParallel(Slopes(shapes, dtype).to(WHERE))
    state = mccl.hooks.compress(ddp, codec)
    generator = torch.Generator().manual_seed(rank)
    gradients = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    seen = backward(ddp, gradients, torch.cuda.Stream(WHERE))
    exact = [real(each).clone() for each in gradients]
    for each in exact:
        dist.all_reduce(each, dist.ReduceOp.AVG)
    missing = state.residuals["slopes.0"].cpu().clone()
    dist.all_reduce(missing, dist.ReduceOp.AVG)
    torch.testing.assert_close(real(seen[0]) + missing, exact[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(real(seen[1]), exact[1])


def real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


@pytest.mark.parametrize("codec", ["int8", "powersgd"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
def test_other_types_pass(pair, codec, dtype):
    run(pair, check_types, codec, dtype)


def check_sparse(rank: int, size: int) -> None:
    import mccl.hooks

    words = nn.Embedding(100, 16, sparse=True).to(WHERE)
    ddp = DistributedDataParallel(words)
    mccl.hooks.compress(ddp, "int8")
    side = torch.cuda.Stream(WHERE)
    for step in range(3):
        keep_default_stream_busy()
        with torch.cuda.stream(side):
            ddp.zero_grad()
            ddp(torch.tensor([rank, step, 99], device=WHERE)).sum().backward()
            seen = words.weight.grad.to_dense()
        side.synchronize()
        expected = torch.zeros(100, 16)
        for each in range(size):
            for word in (each, step, 99):
                expected[word] += 1 / size
        assert torch.equal(seen.cpu(), expected), step


def test_sparse_gradients_pass(pair):
    run(pair, check_sparse)


def check_overflow(rank: int, size: int, codec: str) -> None:
    import mccl.hooks

    shapes = [(128, 64), (64, 64), (100,)]
    ddp = DistributedDataParallel(Slopes(shapes).to(WHERE), bucket_cap_mb=0.02)
    state = mccl.hooks.compress(ddp, codec)
    side = torch.cuda.Stream(WHERE)
    backward(ddp, random_gradients(shapes, rank, 0), side)
    before = {name: each.clone() for name, each in state.residuals.items()}
    gradients = random_gradients(shapes, rank, 1)
    gradients[2][3] = torch.inf if rank == 1 else 0.0  # this parameter is sent uncompressed
    seen = backward(ddp, gradients, side)
    assert not seen[2].isfinite().all()
    assert all(torch.equal(state.residuals[name], each) for name, each in before.items())
    backward(ddp, random_gradients(shapes, rank, 2), side)
    assert not any(torch.equal(state.residuals[name], each) for name, each in before.items())


@pytest.mark.parametrize("codec", ["int8", "powersgd"])
def test_a_step_that_overflows_leaves_residuals(pair, codec):
    run(pair, check_overflow, codec)
