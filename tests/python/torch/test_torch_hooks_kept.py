"""State that hooks keep for the next step: its precision, and its survival of overflows."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from test_torch_hooks import Lines, batch, model, run, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIXTEEN_BIT = [torch.float16, torch.bfloat16]


class Slope(nn.Module):
    """A parameter whose gradient, on every rank, is the argument of the call."""

    def __init__(self, *shape: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape, dtype=dtype))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight * gradient).float().sum()


def mean_of_ranks(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    return tensor


def check_precision(rank: int, size: int, codec: str, options: dict, dtype: torch.dtype) -> None:
    import mccl.hooks

    torch.manual_seed(0)
    gradient = torch.ones(64, 64).to(dtype)
    gradient[:, ::8] = 3000
    gradient[:, 1::8] *= torch.rand(64, 8).to(dtype)
    ddp = DistributedDataParallel(Slope(64, 64, dtype=dtype))
    state = mccl.hooks.compress(ddp, codec, **options)
    applied = torch.zeros(64, 64, dtype=torch.float64)
    steps = 300
    for _ in range(steps):
        ddp.zero_grad()
        ddp(gradient).backward()
        applied += ddp.module.weight.grad
    assert state.residuals["weight"].dtype == torch.float32
    still_to_send = mean_of_ranks(state.residuals["weight"].double())
    error = (applied + still_to_send - steps * gradient.double()).norm(dim=0)
    # Averages are rounded to the gradients' type, by at most half a unit in the last place.
    bound = torch.finfo(dtype).eps * steps * gradient.double().norm(dim=0)
    assert (error < bound + torch.finfo(dtype).eps * 3000).all(), (error / bound).max()
    assert state.statistics.given == steps * 64 * 64 * 2


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        ("topk", {"ratio": 0.1}),
        pytest.param("int4", {}, marks=pytest.mark.long),
        pytest.param("powersgd", {"rank": 1}, marks=pytest.mark.long),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.long)], ids=str
)
def test_residuals_of_16_bit_gradients_are_not_rounded(pool, codec, options, dtype):
    run(pool, check_precision, codec, options, dtype)


def check_small_beside_large(rank: int, size: int, dtype: torch.dtype) -> None:
    import mccl.hooks

    ddp = DistributedDataParallel(Slope(64, 64, dtype=dtype))
    state = mccl.hooks.compress(ddp, "topk", ratio=1 / 4096)
    gradient = torch.zeros(64, 64, dtype=dtype)
    gradient[0, 0] = 3000
    gradient[0, 1] = 1
    start = torch.zeros(64, 64)
    start[0, 1] = 2900  # the value after 2900 steps
    state.load_state_dict({"step": 2900, "residuals": {"weight": start}})
    for _ in range(90):
        ddp.zero_grad()
        ddp(gradient).backward()
    assert state.residuals["weight"][0, 1] == 2990


@pytest.mark.parametrize("dtype", [torch.float32, *SIXTEEN_BIT], ids=str)
def test_small_values_beside_large_ones_add_up(pool, dtype):
    run(pool, check_small_beside_large, dtype)


def check_momentum_precision(rank: int, size: int, dtype: torch.dtype) -> None:
    import mccl.hooks

    ddp = DistributedDataParallel(Slope(64, 64, dtype=dtype))
    state = mccl.hooks.compress(ddp, "int8", momentum=0.9)
    velocity = torch.zeros(64, 64)
    gradient = torch.full((64, 64), 3.0, dtype=dtype)
    for _ in range(40):
        ddp.zero_grad()
        ddp(gradient).backward()
        velocity = 0.9 * velocity + gradient.float()
    kept = state.state_dict()["velocities"]["weight"]
    assert kept.dtype == torch.float32
    torch.testing.assert_close(kept, velocity)


@pytest.mark.parametrize("dtype", SIXTEEN_BIT, ids=str)
def test_momentum_of_16_bit_gradients_is_not_rounded(pool, dtype):
    run(pool, check_momentum_precision, dtype)


def check_loading(rank: int, size: int, codec: str) -> None:
    """Loads 16-bit states, as earlier releases saved them, without the fields that are new."""
    import mccl.hooks

    ddp = DistributedDataParallel(model())
    state = mccl.hooks.compress(ddp, codec)
    old = {name: torch.ones_like(each).bfloat16() for name, each in ddp.module.named_parameters()}
    state.load_state_dict({"step": 3, "residuals": old})
    assert all(
        each.dtype == torch.float32 and each.eq(1).all() for each in state.residuals.values()
    )
    train(ddp, rank, size, range(1))
    assert old["0.weight"].eq(1).all()  # the hook works on a copy of the loaded state


@pytest.mark.parametrize("codec", ["int8", "powersgd"])
def test_a_state_of_another_type_is_converted(pool, codec):
    run(pool, check_loading, codec)


def check_overflow(rank: int, size: int, codec: str, dtype: torch.dtype) -> None:
    import mccl.hooks

    ddp = DistributedDataParallel(nn.Linear(100, 200, bias=False, dtype=dtype))
    state = mccl.hooks.compress(ddp, codec)
    finite = []
    for step in range(3):
        ddp.zero_grad()
        inputs = torch.full((8, 100), 100.0, dtype=dtype)
        if step == 1 and rank == 0:
            inputs[0, 0] = torch.inf
        ddp(inputs).float().sum().backward()
        finite.append(bool(ddp.module.weight.grad.isfinite().all()))
    assert finite == [True, False, True]  # a loss scaler relies on the overflow being visible
    assert all(each.isfinite().all() for each in state.residuals.values())
    assert state.statistics.error < 1  # finite, although squares exceed float16's range


def check_momentum_after_overflow(rank: int, size: int) -> None:
    import mccl.hooks

    ddp = DistributedDataParallel(nn.Linear(100, 200, bias=False))
    state = mccl.hooks.compress(ddp, "int8", momentum=0.9)
    for step in range(3):
        ddp.zero_grad()
        inputs = torch.full((8, 100), torch.inf if step == 1 and rank == 0 else 1.0)
        ddp(inputs).sum().backward()
        assert bool(ddp.module.weight.grad.isfinite().all()) == (step != 1)
    assert all(each.isfinite().all() for each in state.state_dict()["velocities"].values())


def test_momentum_outlives_a_step_that_overflows(pool):
    run(pool, check_momentum_after_overflow)


@pytest.mark.parametrize("codec", ["fp16", "int8", "topk", "powersgd"])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.long)],
)
def test_a_step_that_overflows_spoils_no_later_one(pool, codec, dtype):
    run(pool, check_overflow, codec, dtype)


def snapshot(state) -> dict[str, torch.Tensor]:
    saved = state.state_dict()
    return {
        f"{key} {name}": each
        for key in ("residuals", "velocities", "right")
        for name, each in saved.get(key, {}).items()
    }


def check_kept(rank: int, size: int, codec: str, options: dict) -> None:
    import mccl.hooks

    ddp = DistributedDataParallel(model(), bucket_cap_mb=0.1)
    state = mccl.hooks.compress(ddp, codec, **options)
    train(ddp, rank, size, range(3))
    before = snapshot(state)
    assert before
    # Only the last layer's gradients overflow, and only on one rank.
    ddp.zero_grad()
    layers = ddp.module
    handle = layers[3].weight.register_hook(
        lambda gradient: gradient + (torch.inf if rank == 1 else 0)
    )
    ddp(batch(rank)[0]).square().sum().backward()
    handle.remove()
    assert not layers[3].weight.grad.isfinite().all()
    assert layers[0].weight.grad.isfinite().all()
    after = snapshot(state)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], each) for name, each in before.items())
    assert state.step == 4
    train(ddp, rank, size, range(4, 5))
    assert not all(torch.equal(snapshot(state)[name], each) for name, each in before.items())
    assert all(each.isfinite().all() for each in snapshot(state).values())
    assert 0 < state.statistics.error < 10


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        ("fp16", {}),
        ("int8", {"momentum": 0.9}),
        ("topk", {"momentum": 0.9}),
        ("powersgd", {}),
    ],
)
def test_a_step_that_overflows_leaves_everything_of_every_rank(pool, codec, options):
    run(pool, check_kept, codec, options)


def check_double(rank: int, size: int, codec: str) -> None:
    import mccl.hooks

    exact = DistributedDataParallel(model().double())
    ddp = DistributedDataParallel(model().double())
    state = mccl.hooks.compress(ddp, codec)
    inputs, targets = batch(rank)
    for each in (exact, ddp):
        nn.functional.cross_entropy(each(inputs.double()), targets).backward()
    assert state.statistics.ratio > 3
    for (name, mine), other in zip(
        ddp.module.named_parameters(), exact.module.parameters(), strict=True
    ):
        if name in state.residuals:
            assert state.residuals[name].dtype == torch.float64
            missing = mean_of_ranks(state.residuals[name])
            torch.testing.assert_close(mine.grad + missing, other.grad, rtol=1e-6, atol=1e-8)
        else:
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk", "powersgd"])
def test_gradients_of_64_bits_pass(pool, codec):
    run(pool, check_double, codec)


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bias = nn.Parameter(torch.randn(40, dtype=torch.complex64))
        self.first = nn.Parameter(torch.randn(30, 40, dtype=torch.complex64))
        self.second = nn.Parameter(torch.randn(40, 20, dtype=torch.complex64))
        self.plain = nn.Parameter(torch.randn(20, 50))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return ((inputs @ self.first + self.bias) @ self.second).abs() @ self.plain


def check_complex(rank: int, size: int, codec: str) -> None:
    import mccl.hooks

    exact, ddp = (DistributedDataParallel(Complex()) for _ in range(2))
    state = mccl.hooks.compress(ddp, codec)
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(8, 30, dtype=torch.complex64, generator=generator)
    for step in range(3):  # DDP changes the order of the buckets after the first step
        applied = {}
        before = {name: mean_of_ranks(each) for name, each in state.residuals.items()}
        for each in (exact, ddp):
            each.zero_grad()
            each(inputs).square().sum().backward()
        for (name, mine), other in zip(
            ddp.module.named_parameters(), exact.module.parameters(), strict=True
        ):
            assert mine.grad.dtype == other.grad.dtype
            applied[name] = real(mine.grad)
            missing = mean_of_ranks(state.residuals[name]) if name in state.residuals else 0
            expected = real(other.grad) + before.get(name, 0)
            scale = expected.abs().max().item()
            torch.testing.assert_close(
                applied[name] + missing,
                expected,
                rtol=1e-5,
                atol=1e-5 * scale,
                msg=f"{step} {name}",
            )
    assert set(state.residuals) == {"first", "second", "plain"}
    assert state.statistics.ratio > 1.8
    saved = state.state_dict()
    state.load_state_dict(saved)


def real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk", "powersgd"])
def test_complex_parameters_are_compressed_by_their_parts(pool, codec):
    run(pool, check_complex, codec)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(1000, 16, sparse=True)
        self.layer = nn.Linear(16, 100)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.layer(self.words(words)).square().sum()


def check_sparse(rank: int, size: int, codec: str) -> None:
    import mccl.hooks

    exact, ddp = (DistributedDataParallel(Sparse()) for _ in range(2))
    state = mccl.hooks.compress(ddp, codec, warm_up=1)
    with Lines() as lines:
        for step in range(4):
            words = torch.tensor([rank, rank + 1, step, 999])
            for each in (exact, ddp):
                each.zero_grad()
                each(words).backward()
            mine, other = (each.module.words.weight.grad for each in (ddp, exact))
            assert mine.is_sparse
            torch.testing.assert_close(mine.to_dense(), other.to_dense())
            torch.testing.assert_close(ddp.module.layer.bias.grad, exact.module.layer.bias.grad)
    assert state.step == 4
    assert set(state.residuals) == {"layer.weight"}
    assert len([text for _, text in lines if "sparse" in text]) == (rank == 0)


@pytest.mark.parametrize("codec", ["int8", "powersgd"])
def test_sparse_gradients_are_exact_and_logged_once(pool, codec):
    run(pool, check_sparse, codec)
