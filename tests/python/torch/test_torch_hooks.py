"""DDP with compressed gradients."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.distributed as dist
from rank_pool import TIMEOUT
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 60


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 200), nn.Linear(200, 10))


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(32, 64, generator=generator)
    weights = torch.randn(64, 10, generator=torch.Generator().manual_seed(99))
    return inputs, (torch.tanh(inputs) @ weights).argmax(1)


def train(
    ddp: DistributedDataParallel, rank: int, size: int, steps: range, momentum: float = 0.0
) -> None:
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1, momentum)
    for step in steps:
        inputs, targets = batch(step * size + rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(inputs), targets).backward()
        optimizer.step()


def weights_of(ddp: DistributedDataParallel) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in ddp.module.parameters()])


def loss_of(ddp: DistributedDataParallel) -> float:
    inputs, targets = batch(123456)
    with torch.no_grad():
        return nn.functional.cross_entropy(ddp.module(inputs), targets).item()


def assert_the_same_on_all(tensor: torch.Tensor, size: int) -> None:
    gathered = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(gathered, tensor)
    assert all(torch.equal(each, tensor) for each in gathered)


class Lines(logging.Handler):
    """Collects the log lines, as levels and texts, between entry and exit."""

    def __enter__(self) -> list[tuple[int, str]]:
        self.lines: list[tuple[int, str]] = []
        self._log = logging.getLogger("mccl")
        self._level = self._log.level
        self._log.setLevel(logging.INFO)
        self._log.addHandler(self)
        return self.lines

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))


def in_job(path: str, rank: int, size: int, check, arguments) -> None:
    import mccl

    mccl.init(port_base=0, transport="tcp", compression_min_bytes=1024)
    try:
        store = dist.FileStore(path, size)
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        check(rank, size, *arguments)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        mccl.init()


def run(pool, check, *arguments) -> None:
    path = pool.store_path()
    pool.run_each(in_job, [(path, rank, pool.size, check, arguments) for rank in range(pool.size)])


def check_training(rank: int, size: int, codec: str, options: dict, worse: float) -> None:
    import mccl.hooks

    exact = DistributedDataParallel(model())
    train(exact, rank, size, range(STEPS))
    before = loss_of(DistributedDataParallel(model()))
    ddp = DistributedDataParallel(model(), bucket_cap_mb=0.2)  # gives several buckets
    state = mccl.hooks.compress(ddp, codec, **options)
    train(ddp, rank, size, range(STEPS))
    assert_the_same_on_all(weights_of(ddp), size)
    assert state.statistics.steps == STEPS
    assert state.statistics.ratio > 1.8
    gain = before - loss_of(exact)
    assert gain > 0.3
    assert before - loss_of(ddp) > (1 - worse) * gain, (loss_of(ddp), loss_of(exact))


@pytest.mark.parametrize(
    ("codec", "options", "worse"),
    [
        pytest.param("fp16", {}, 0.05, marks=pytest.mark.long),
        ("bf16", {}, 0.05),
        ("int8", {}, 0.05),
        pytest.param("fp8", {}, 0.05, marks=pytest.mark.long),
        pytest.param("int4", {}, 0.1, marks=pytest.mark.long),
        pytest.param("topk", {"ratio": 0.05}, 0.3, marks=pytest.mark.long),
        ("topk", {"ratio": 0.05, "ramp": 20, "momentum": 0.5}, 0.2),
        pytest.param("powersgd", {"rank": 4}, 0.1, marks=pytest.mark.long),
    ],
)
def test_a_model_trains_as_it_does_on_exact_sums(pool, codec, options, worse):
    run(pool, check_training, codec, options, worse)


def check_warm_up(rank: int, size: int) -> None:
    import mccl.hooks

    exact = DistributedDataParallel(model())
    train(exact, rank, size, range(3))
    ddp = DistributedDataParallel(model())
    state = mccl.hooks.compress(ddp, "int4", warm_up=3)
    train(ddp, rank, size, range(3))
    assert torch.equal(weights_of(ddp), weights_of(exact))
    assert not state.residuals
    train(exact, rank, size, range(3, 4))
    train(ddp, rank, size, range(3, 4))
    assert not torch.equal(weights_of(ddp), weights_of(exact))


def test_the_first_steps_may_be_exact(pool):
    run(pool, check_warm_up)


def check_ramp(rank: int, size: int) -> None:
    import mccl.hooks

    ddp = DistributedDataParallel(model())
    state = mccl.hooks.compress(ddp, "topk", warm_up=1, ramp=3, exact=lambda *_: False)
    shares = []
    for step in range(6):
        state.statistics.reset()
        train(ddp, rank, size, range(step, step + 1))
        shares.append(
            4 / 6 / state.statistics.ratio
        )  # an element takes 4 bytes, or 6 together with its index
    assert state.statistics.sent > 0
    expected = [0.25, 0.0625, 0.0156, 0.01, 0.01]
    assert shares[1:] == [pytest.approx(share, rel=0.06) for share in expected]


def test_topk_lowers_its_ratio_step_by_step(pool):
    run(pool, check_ramp)


def check_momentum_of_all(rank: int, size: int) -> None:
    import mccl.hooks

    exact = DistributedDataParallel(model())
    train(exact, rank, size, range(5), momentum=0.9)
    ddp = DistributedDataParallel(model())
    state = mccl.hooks.compress(ddp, "topk", warm_up=5, momentum=0.9)
    train(ddp, rank, size, range(5))
    assert torch.allclose(weights_of(ddp), weights_of(exact), rtol=1e-4, atol=1e-5)
    assert set(state.state_dict()["velocities"]) == {name for name, _ in model().named_parameters()}


def test_while_all_is_sent_momentum_is_that_of_the_optimizer(pool):
    run(pool, check_momentum_of_all)


def check_momentum_of_some(rank: int, size: int) -> None:
    import mccl.hooks

    ddp = DistributedDataParallel(model())
    state = mccl.hooks.compress(ddp, "topk", ratio=0.05, momentum=0.9)
    train(ddp, rank, size, range(3))
    velocities = state.state_dict()["velocities"]
    for name, left in state.residuals.items():
        assert not velocities[name][left == 0].any(), name
        assert velocities[name][left != 0].count_nonzero() > left.numel() / 3, name
    assert velocities["0.bias"].any()  # exact parameters keep their momentum
    saved = state.state_dict()
    again = DistributedDataParallel(model())
    resumed = mccl.hooks.compress(again, "topk", ratio=0.05, momentum=0.9)
    resumed.load_state_dict(saved)
    again.module.load_state_dict(ddp.module.state_dict())
    train(ddp, rank, size, range(3, 5))
    train(again, rank, size, range(3, 5))
    difference = (weights_of(ddp) - weights_of(again)).norm() / weights_of(ddp).norm()
    assert difference < 1e-2, difference  # rounding differs: codec blocks begin elsewhere
    odd = {"step": 1, "residuals": {}, "velocities": {"0.bias": torch.zeros(3)}}
    with pytest.raises(ValueError, match=r"momentum of 0\.bias"):
        resumed.load_state_dict(odd)


def test_what_has_been_sent_begins_its_momentum_anew(pool):
    run(pool, check_momentum_of_some)


def check_exact_parameters(rank: int, size: int) -> None:
    import mccl.hooks

    exact = DistributedDataParallel(model())
    ddp = DistributedDataParallel(model())
    state = mccl.hooks.compress(ddp, "int4", exact=lambda name, _: name == "2.weight")
    train(exact, rank, size, range(1))
    train(ddp, rank, size, range(1))
    for (name, mine), other in zip(
        ddp.module.named_parameters(), exact.module.parameters(), strict=True
    ):
        # Sums over buckets of other lengths may be added in another order.
        assert torch.allclose(mine, other, rtol=1e-5, atol=1e-7) == (name == "2.weight"), name
    assert "2.weight" not in state.residuals
    assert set(state.residuals) == {name for name, _ in model().named_parameters()} - {"2.weight"}


def test_some_parameters_may_be_exact(pool):
    run(pool, check_exact_parameters)


def check_resume(rank: int, size: int, codec: str) -> None:
    import mccl.hooks

    whole = DistributedDataParallel(model())
    state = mccl.hooks.compress(whole, codec)
    train(whole, rank, size, range(4))
    weights = {name: each.clone() for name, each in whole.module.state_dict().items()}
    saved = state.state_dict()
    train(whole, rank, size, range(4, 8))
    again = model()
    again.load_state_dict(weights)
    # The buckets differ, and so does their order of parameters.
    ddp = DistributedDataParallel(again, bucket_cap_mb=0.2 if codec == "powersgd" else 25)
    resumed = mccl.hooks.compress(ddp, codec)
    resumed.load_state_dict(saved)
    train(ddp, rank, size, range(4, 8))
    assert resumed.step == 8
    difference = (weights_of(ddp) - weights_of(whole)).norm() / weights_of(whole).norm()
    assert difference < 4e-3, difference  # rounding differs: codec blocks begin elsewhere
    odd = {"step": 1, "residuals": {"nothing.weight": torch.zeros(3)}}
    with pytest.raises(ValueError, match=r"nothing\.weight"):
        resumed.load_state_dict(odd)


@pytest.mark.parametrize("codec", ["int8", "topk", "powersgd"])
def test_training_resumes_from_a_saved_state(pool, codec):
    run(pool, check_resume, codec)


class SometimesUnused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.always = nn.Linear(100, 100, bias=False)
        self.sometimes = nn.Linear(100, 100, bias=False)

    def forward(self, inputs: torch.Tensor, use: bool) -> torch.Tensor:
        outputs = self.always(inputs).sum()
        return outputs + (self.sometimes(inputs) * weights_of_outputs()).sum() if use else outputs


def weights_of_outputs() -> torch.Tensor:
    """Returns factors that give the gradients a rank above that of powersgd."""
    return torch.randn(8, 100, generator=torch.Generator().manual_seed(7))


def check_unused(rank: int, size: int, codec: str) -> None:
    import mccl.hooks

    ddp = DistributedDataParallel(SometimesUnused(), find_unused_parameters=True)
    state = mccl.hooks.compress(ddp, codec)
    applied = torch.zeros(100, 100)
    wanted = torch.zeros(100, 100)
    for step in range(6):
        ddp.zero_grad()
        inputs = torch.randn(8, 100, generator=torch.Generator().manual_seed(step * size + rank))
        ddp(inputs, step % 2 == 0).backward()
        if ddp.module.sometimes.weight.grad is not None:
            applied += ddp.module.sometimes.weight.grad
        if step % 2 == 0:
            wanted += weights_of_outputs().t() @ inputs
    still_to_send = wanted - state.residuals["sometimes.weight"]
    dist.all_reduce(still_to_send, dist.ReduceOp.AVG)
    assert torch.allclose(applied, still_to_send, atol=0.02)


@pytest.mark.parametrize("codec", ["topk", "powersgd"])
def test_nothing_is_lost_where_a_parameter_is_not_used(pool, codec):
    run(pool, check_unused, codec)


def check_group_of_some(rank: int, size: int) -> None:
    import mccl.hooks

    some = dist.new_group([0, 1], timeout=TIMEOUT)
    if rank < 2:
        ddp = DistributedDataParallel(model(), process_group=some)
        state = mccl.hooks.compress(ddp, "int8")
        train(ddp, rank, 2, range(2))
        for group in (state.group, state.rounding):
            assert group._get_backend(torch.device("cpu")).options._timeout == TIMEOUT
    # Groups made later have the same names on all ranks.
    later = dist.new_group(list(range(size)))
    one = torch.ones(1)
    dist.all_reduce(one, group=later)
    assert one == size


def test_a_model_may_be_of_some_ranks_only(pool):
    run(pool, check_group_of_some)


def check_exact_under_setting(rank: int, size: int, codec: str) -> None:
    import mccl.hooks

    exact = DistributedDataParallel(nn.Linear(1000, 1000))
    rounded = dist.new_group(pg_options=mccl.torch_backend.Options(compression="int4"))
    ddp = DistributedDataParallel(copy.deepcopy(exact.module), process_group=rounded)
    mccl.hooks.compress(ddp, codec, warm_up=1)
    inputs = torch.randn(4, 1000, generator=torch.Generator().manual_seed(rank))
    for warm in (True, False):
        for each in (exact, ddp):
            each.zero_grad()
            each(inputs).square().sum().backward()
        assert torch.allclose(ddp.module.bias.grad, exact.module.bias.grad, rtol=1e-5, atol=1e-5)
        same = torch.allclose(ddp.module.weight.grad, exact.module.weight.grad, atol=1e-4)
        assert same == warm


@pytest.mark.parametrize("codec", ["int8", "powersgd"])
def test_exact_parameters_stay_exact_whatever_the_group_does(pool, codec):
    run(pool, check_exact_under_setting, codec)


def check_shared_memory(codec: str) -> None:
    """Exact sums leave no residuals, and change nothing."""
    import mccl.hooks

    rank, size = dist.get_rank(), dist.get_world_size()
    exact = DistributedDataParallel(model())
    train(exact, rank, size, range(3))
    ddp = DistributedDataParallel(model())
    with Lines() as lines:
        state = mccl.hooks.compress(ddp, codec, exact=lambda *_: False)
        train(ddp, rank, size, range(3))
    assert torch.equal(weights_of(ddp), weights_of(exact))
    assert all(not residual.any() for residual in state.residuals.values())
    assert state.statistics.ratio == 1
    text = (
        f"{codec} is not applied: all ranks share memory, where compression saves nothing, so "
        "gradients are exact"
    )
    assert lines == ([(logging.INFO, f"mccl.hooks: {text}")] if rank == 0 else []), lines


@pytest.mark.parametrize("codec", ["int4", "topk"])
def test_nothing_changes_in_shared_memory(pool, codec):
    pool.run(check_shared_memory, codec)


def check_refusals() -> None:
    import mccl.hooks

    ddp = DistributedDataParallel(model())
    for codec, options, text in (
        ("int9", {}, "did you mean int8"),
        ("topk", {"ratio": 0.0}, "above 0"),
        ("topk", {"ratio": 1.5}, "at most 1"),
        ("powersgd", {"rank": 0}, "at least 1"),
        ("int8", {"warm_up": -1}, "expected numbers of steps"),
        ("topk", {"ramp": -1}, "expected a number of steps"),
        ("int8", {"ramp": 10}, "ramp applies only to topk"),
        ("topk", {"momentum": 1.0}, "below 1"),
        ("powersgd", {"momentum": 0.9}, "leave it to the optimizer"),
    ):
        with pytest.raises(ValueError, match=text):
            mccl.hooks.compress(ddp, codec, **options)


def test_senseless_options_are_refused(pool):
    pool.run(check_refusals)
