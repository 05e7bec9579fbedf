"""FSDP2 with compressed gradients."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.distributed as dist
from test_torch_hooks import STEPS, Lines, batch, model, run
from torch import nn


def sharded(seed_model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in seed_model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(seed_model, mesh=mesh)


def train_sharded(module: nn.Module, rank: int, size: int, steps: range) -> None:
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for step in steps:
        inputs, targets = batch(step * size + rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()


def sharded_loss(module: nn.Module) -> float:
    inputs, targets = batch(123456)
    with torch.no_grad():
        return nn.functional.cross_entropy(module(inputs), targets).item()


def check_sharded(rank: int, size: int, codec: str, options: dict, worse: float) -> None:
    import mccl.hooks

    before = sharded_loss(model())
    exact = sharded(model())
    train_sharded(exact, rank, size, range(STEPS))
    module = sharded(model())
    state = mccl.hooks.compress(module, codec, warm_up=2, **options)
    train_sharded(module, rank, size, range(STEPS))
    assert state.step == state.statistics.steps == STEPS
    assert state.statistics.ratio > 1.8
    assert set(state.residuals) == {"0.weight", "2.weight", "3.weight"}
    gain = before - sharded_loss(exact)
    assert gain > 0.3
    assert before - sharded_loss(module) > (1 - worse) * gain
    saved = state.state_dict()
    again = mccl.hooks.compress(sharded(model()), codec, **options)
    again.load_state_dict(saved)
    assert torch.equal(again.residuals["2.weight"], state.residuals["2.weight"])


@pytest.mark.parametrize(
    ("codec", "options", "worse"),
    [
        pytest.param("bf16", {}, 0.05, marks=pytest.mark.long),
        ("int8", {}, 0.05),
        pytest.param("int4", {}, 0.1, marks=pytest.mark.long),
        pytest.param("topk", {"ratio": 0.05}, 0.3, marks=pytest.mark.long),
        pytest.param("topk", {"ratio": 0.05, "ramp": 20}, 0.2, marks=pytest.mark.long),
    ],
)
def test_a_sharded_model_trains_as_it_does_on_exact_sums(pool, codec, options, worse):
    run(pool, check_sharded, codec, options, worse)


def check_sharded_errors(rank: int, size: int) -> None:
    import mccl.hooks

    with pytest.raises(ValueError, match="after fully_shard; found Linear"):
        mccl.hooks.compress(nn.Linear(2, 2), "int8")
    with pytest.raises(ValueError, match="powersgd works only with DistributedDataParallel"):
        mccl.hooks.compress(sharded(model()), "powersgd")
    with pytest.raises(ValueError, match="leave it to the optimizer"):
        mccl.hooks.compress(sharded(model()), "topk", momentum=0.9)
    module = sharded(model())
    mccl.hooks.compress(module[0], "int8")
    with pytest.raises(RuntimeError, match="already has a hook"):
        mccl.hooks.compress(module, "int8")


def test_modules_that_are_not_sharded_are_refused(pool):
    run(pool, check_sharded_errors)


def whole_weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([each.full_tensor().flatten() for each in module.parameters()])


def check_resume(rank: int, size: int, codec: str, options: dict) -> None:
    import mccl.hooks

    whole = sharded(model())
    state = mccl.hooks.compress(whole, codec, **options)
    train_sharded(whole, rank, size, range(4))
    weights = {name: each.clone() for name, each in whole.state_dict().items()}
    saved = state.state_dict()
    assert saved["step"] == 4
    train_sharded(whole, rank, size, range(4, 8))
    again = sharded(model())
    again.load_state_dict(weights)
    resumed = mccl.hooks.compress(again, codec, **options)
    resumed.load_state_dict(saved)
    train_sharded(again, rank, size, range(4, 8))
    assert resumed.step == 8
    assert torch.equal(whole_weights(again), whole_weights(whole))


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        pytest.param("int8", {}, marks=pytest.mark.long),
        ("int8", {"warm_up": 4}),
        ("topk", {"ratio": 0.05, "ramp": 6}),
    ],
)
def test_resumed_training_has_the_bits_of_uninterrupted_training(pool, codec, options):
    run(pool, check_resume, codec, options)


def in_two_parts() -> nn.Module:
    """Returns two layers that make up one unit of fully_shard."""
    return nn.Sequential(nn.Linear(64, 320), nn.ReLU(), nn.Linear(320, 12, bias=False))


def one_unit(module: nn.Module, **options) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)), **options)


def gradients_of(module: nn.Module, rank: int, dtype: torch.dtype = torch.float32) -> dict:
    module.zero_grad()
    inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(rank)).to(dtype)
    module(inputs).abs().square().sum().backward()
    return {
        name: each.grad.full_tensor()
        for name, each in module.named_parameters()
        if each.grad is not None
    }


def assert_close(mine: dict, exact: dict, error: float) -> None:
    assert mine.keys() == exact.keys()
    for name, each in exact.items():
        assert (mine[name] - each).norm() < error * each.norm(), name


def check_frozen(rank: int, size: int) -> None:
    import mccl.hooks

    def frozen() -> nn.Module:
        module = in_two_parts()
        module[0].weight.requires_grad_(False)
        return module

    torch.manual_seed(0)
    mine, exact = frozen(), frozen()
    exact.load_state_dict(mine.state_dict())
    mine, exact = one_unit(mine), one_unit(exact)
    state = mccl.hooks.compress(mine, "int8")
    assert_close(gradients_of(mine, rank), gradients_of(exact, rank), 0.02)
    assert set(state.residuals) == {"2.weight"}
    assert state.statistics.ratio > 2.5


def test_a_unit_with_a_frozen_parameter_is_compressed(pool):
    run(pool, check_frozen)


def check_other_axis(rank: int, size: int, dtype: torch.dtype) -> None:
    from torch.distributed.tensor import Shard

    import mccl.hooks

    def place(parameter: nn.Parameter) -> Shard:
        return Shard(1 if parameter.dim() > 1 else 0)

    torch.manual_seed(0)
    mine, exact = in_two_parts().to(dtype), in_two_parts().to(dtype)
    mine[1] = exact[1] = nn.Identity()
    exact.load_state_dict(mine.state_dict())
    mine, exact = (one_unit(each, shard_placement_fn=place) for each in (mine, exact))
    state = mccl.hooks.compress(mine, "int4")
    applied: dict = {}
    for _ in range(20):
        for name, each in gradients_of(mine, rank, dtype).items():
            applied[name] = applied.get(name, 0) + each / 20
    expected = gradients_of(exact, rank, dtype)
    # A residual that is added to other elements than it was taken from would increase the error.
    assert_close(applied, expected, 0.02)
    shapes = {name: each.shape for name, each in exact.named_parameters() if each.dim() > 1}
    complex_part = (2,) if dtype.is_complex else ()
    assert {name: (*shape, *complex_part) for name, shape in shapes.items()} == {
        name: tuple(each.shape) for name, each in state.residuals.items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_parameters_may_be_divided_along_another_axis(pool, dtype):
    run(pool, check_other_axis, dtype)


class TwoPaths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.paths = nn.ModuleList(nn.Linear(64, 256, bias=False) for _ in range(2))

    def forward(self, inputs: torch.Tensor, path: int) -> torch.Tensor:
        return self.paths[path](inputs)


def check_partly_used(rank: int, size: int) -> None:
    import mccl.hooks

    torch.manual_seed(0)
    module = one_unit(TwoPaths())
    state = mccl.hooks.compress(module, "int8")
    with Lines() as lines:
        for step in range(4):
            module.zero_grad()
            module(torch.ones(8, 64), step % 2).sum().backward()
            gradient = module.paths[step % 2].weight.grad.full_tensor()
            assert gradient.eq(8).all()
    assert state.step == 4 and not state.residuals
    said = [(level, text) for level, text in lines if "only some parameters of a module" in text]
    assert len(said) == (rank == 0), lines
    if rank == 0:
        assert said[0][0] == logging.WARNING and f"{64 * 256 * 4} bytes" in said[0][1]


def test_a_partly_used_unit_is_exact_and_logged_once(pool):
    run(pool, check_partly_used)


def check_divide_factor(rank: int, size: int) -> None:
    import mccl.hooks

    module = one_unit(nn.Linear(64, 64, bias=False))
    state = mccl.hooks.compress(module, "int8")
    module.set_gradient_divide_factor(3.0)
    with Lines() as lines:
        module(torch.ones(3, 64)).sum().backward()
    assert module.weight.grad.full_tensor().eq(size).all()
    assert not state.residuals
    assert len([text for _, text in lines if "divide_factor" in text]) == (rank == 0)


def test_gradients_that_no_codec_supports_are_exact_and_logged(pool):
    run(pool, check_divide_factor)


def check_without_root(rank: int, size: int) -> None:
    """Without a root module, each layer reduces in its own callback after the backward pass."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import mccl.hooks

    module = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    for layer in module:
        fully_shard(layer, mesh=init_device_mesh("cpu", (size,)))
    state = mccl.hooks.compress(module, "int8")
    for step in range(1, 4):
        module.zero_grad()
        module[2](module[1](torch.ones(8, 64))).sum().backward()
        assert state.step == step
    assert set(state.residuals) == {"1.weight", "2.weight"}


def test_a_backward_pass_is_one_step(pool):
    run(pool, check_without_root)


def check_sharded_overflow(rank: int, size: int) -> None:
    import mccl.hooks

    torch.manual_seed(0)
    module = sharded(model())
    state = mccl.hooks.compress(module, "int8")
    train_sharded(module, rank, size, range(2))
    before = {name: each.clone() for name, each in state.residuals.items()}
    assert all(each.any() for each in before.values())
    # Only the last layer's gradients overflow, and only on one rank.
    module.zero_grad()
    hidden = module[2](module[1](module[0](batch(rank)[0])))
    spoilt = module[3](hidden.detach() * (torch.inf if rank == 1 else 1))
    (hidden.sum() + spoilt.sum()).backward()
    assert not module[3].weight.grad.full_tensor().isfinite().all()
    assert module[0].weight.grad.full_tensor().isfinite().all()
    assert all(torch.equal(state.residuals[name], each) for name, each in before.items())
    train_sharded(module, rank, size, range(3, 4))
    assert not any(torch.equal(state.residuals[name], each) for name, each in before.items())
    assert state.step == 4


def test_a_step_that_overflows_leaves_residuals_of_every_rank(pool):
    run(pool, check_sharded_overflow)


def check_precision(rank: int, size: int) -> None:
    """Mixed precision reduces in 16 bits, but residuals are not rounded to 16 bits."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    import mccl.hooks

    module = one_unit(
        nn.Linear(64, 64, bias=False), mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
    )
    state = mccl.hooks.compress(module, "topk", ratio=1 / 4096)
    inputs = torch.ones(1, 64)
    factors = torch.ones(64)
    factors[0] = 3000
    for _ in range(300):
        module.zero_grad()
        (module(inputs) * factors)[0, [0, 1]].sum().backward()
    assert state.residuals["weight"].dtype == torch.float32
    total = state.residuals["weight"][1].sum()
    dist.all_reduce(total, dist.ReduceOp.AVG)
    assert total > 300 * 64 - 3000, total
    assert state.statistics.given == 300 * 4096 * 2


def test_residuals_of_16_bit_reductions_are_not_rounded(pool):
    run(pool, check_precision)
