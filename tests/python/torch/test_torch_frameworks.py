"""Frameworks on top of the backend, each compared with the same computation in one process."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16)
        self.second = nn.Linear(16, 4)
        self.unused = nn.Linear(4, 4)

    def forward(self, x, use_unused: bool = False):
        x = self.second(torch.relu(self.first(x)))
        return self.unused(x) if use_unused else x


def model_and_data(seed: int = 7):
    torch.manual_seed(seed)
    net = Net()
    size = dist.get_world_size()
    return net, torch.randn(STEPS, size, 5, 6), torch.randn(STEPS, size, 5, 4)


def train(model, optimizer, data, target, pick, **kwargs) -> None:
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = (model(pick(data[step]), **kwargs) - pick(target[step])).square().mean()
        loss.backward()
        optimizer.step()


def trained_alone(**kwargs) -> Net:
    net, data, target = model_and_data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, optimizer, data, target, lambda x: x.flatten(0, 1), **kwargs)
    return net


def mine(x: torch.Tensor) -> torch.Tensor:
    return x[dist.get_rank()]


def check_alike(model, reference, **tolerances) -> None:
    pairs = zip(model.named_parameters(), reference.parameters(), strict=True)
    for (name, found), expected in pairs:
        value = found.full_tensor() if isinstance(found, DTensor) else found
        torch.testing.assert_close(value.data, expected.data, msg=name, **tolerances)


# --- data parallel ------------------------------------------------------------------------------


def check_ddp(hook_name: str | None, options: dict, tolerances: dict) -> None:
    net, data, target = model_and_data()
    if dist.get_rank():
        for parameter in net.parameters():
            parameter.data.zero_()  # rank 0's weights are broadcast
    options = {"find_unused_parameters": True, **options}
    model = DistributedDataParallel(net, **options)
    if hook_name is not None:
        model.register_comm_hook(None, getattr(default_hooks, hook_name))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, data, target, mine)
    check_alike(net, trained_alone(), **tolerances)
    weights = [torch.empty_like(net.first.weight) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, net.first.weight.detach())
    assert all(torch.equal(w, weights[0]) for w in weights)


@pytest.mark.parametrize(
    ("hook", "options", "tolerances"),
    [
        (None, {}, {}),
        (None, {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0001}, {}),
        ("allreduce_hook", {}, {}),
        ("fp16_compress_hook", {}, {"atol": 1e-2, "rtol": 1e-2}),
        ("bf16_compress_hook", {}, {"atol": 3e-2, "rtol": 3e-2}),
    ],
)
def test_ddp(pool, hook, options, tolerances):
    pool.run(check_ddp, hook, options, tolerances)


def check_ddp_powersgd() -> None:
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)))
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    weight = model.module[0].weight.detach()
    weights = [torch.empty_like(weight) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, weight)
    assert all(torch.equal(w, weights[0]) for w in weights)


def test_ddp_with_power_sgd(pool):
    pool.run(check_ddp_powersgd)


def check_no_sync_and_buffers() -> None:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model = DistributedDataParallel(net)
    torch.manual_seed(dist.get_rank())
    first, second = torch.randn(6, 4), torch.randn(6, 4)
    with model.no_sync():
        model(first).sum().backward()
    local = net[0].weight.grad.clone()
    model(second).sum().backward()
    grads = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(grads, net[0].weight.grad)
    assert all(torch.equal(g, grads[0]) for g in grads)
    assert not torch.equal(local, grads[0])
    model(first)  # the forward pass broadcasts rank 0's buffers
    model.eval()
    expected = net[1].running_mean.clone()
    dist.broadcast(expected, 0)
    assert expected.isfinite().all()


def test_ddp_no_sync_and_buffers(pool):
    pool.run(check_no_sync_and_buffers)


def check_ddp_join() -> None:
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Linear(3, 1))
    batches = 2 + dist.get_rank()
    with model.join():
        for _ in range(batches):
            model(torch.ones(2, 3)).sum().backward()
    dist.barrier()


def test_ddp_with_uneven_inputs(pool):
    pool.run(check_ddp_join)


def check_zero() -> None:
    net, data, target = model_and_data()
    model = DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    train(model, optimizer, data, target, mine)
    check_alike(net, trained_alone())
    optimizer.consolidate_state_dict(to=0)


def test_zero_redundancy_optimizer(pool):
    pool.run(check_zero)


# --- sharded and tensor parallel ----------------------------------------------------------------


def check_fsdp(dtype) -> None:
    net, data, target = model_and_data()
    reference = trained_alone(use_unused=True)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype, cast_forward_inputs=True)
    for layer in (net.first, net.second):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(net, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = (net(mine(data[step]), use_unused=True).float() - mine(target[step])).square().mean()
        loss.backward()
        optimizer.step()
    loose = {} if dtype is None else {"atol": 5e-2, "rtol": 5e-2}
    check_alike(net, reference, **loose)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=str)
def test_fault_22_fsdp2(pool, dtype):
    pool.run(check_fsdp, dtype)


def check_hybrid_fsdp() -> None:
    net, data, target = model_and_data()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, optimizer, data, target, mine, use_unused=True)
    check_alike(net, trained_alone(use_unused=True))


def test_hybrid_fsdp2(pool):
    pool.run(check_hybrid_fsdp)


def check_tensor_parallel() -> None:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    reference = copy.deepcopy(net)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(5, 8)
    torch.testing.assert_close(net(x), reference(x))
    net(x).square().sum().backward()
    reference(x).square().sum().backward()
    torch.testing.assert_close(net[0].weight.grad.full_tensor(), reference[0].weight.grad)
    whole = torch.arange(30.0).reshape(6, 5)
    shards = distribute_tensor(whole, mesh, [Shard(0)])  # uneven: 6 rows on 4 ranks
    torch.testing.assert_close(shards.full_tensor(), whole)
    torch.testing.assert_close(shards.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    torch.testing.assert_close(
        (shards + shards).redistribute(mesh, [Replicate()]).to_local(), 2 * whole
    )


def test_tensor_parallel_and_dtensor(pool):
    pool.run(check_tensor_parallel)


def check_mesh_2d() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    rank = dist.get_rank()
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=mesh.get_group("tp"))
    assert tensor.item() == (1 if rank < 2 else 5)
    dist.all_reduce(tensor, group=mesh.get_group("dp"))
    assert tensor.item() == 6


def test_device_mesh(pool):
    pool.run(check_mesh_2d)


def check_pipeline() -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(size)])
    reference = copy.deepcopy(layers)
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))

    def loss(output, target):
        return (output - target).square().sum()

    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=loss, scale_grads=False)
    if rank == 0:
        schedule.step(x)
    elif rank == size - 1:
        schedule.step(target=y)
    else:
        schedule.step()
    loss(reference(x), y).backward()
    torch.testing.assert_close(layers[rank].weight.grad, reference[rank].weight.grad)


def test_pipeline(pool):
    pool.run(check_pipeline)


# --- functional collectives, compilation, checkpoints -------------------------------------------


def functional(x: torch.Tensor) -> torch.Tensor:
    group = dist.group.WORLD
    summed = funcol.all_reduce(x * 2, "sum", group)
    gathered = funcol.all_gather_tensor(summed + 1, 0, group)
    scattered = funcol.reduce_scatter_tensor(gathered, "avg", 0, group)
    swapped = funcol.all_to_all_single(gathered, None, None, group)
    return scattered.sum() + swapped.sum()


def check_functional() -> None:
    size = dist.get_world_size()
    x = torch.ones(4)
    expected = 4 * (2 * size + 1) * (1 + size)
    assert functional(x).item() == expected
    lists = funcol.all_reduce_coalesced([torch.ones(2), torch.ones(3)], "sum", dist.group.WORLD)
    assert all(t.eq(size).all() for t in lists)
    lists = funcol.all_gather_into_tensor_coalesced(
        [torch.ones(2), torch.ones(3)], dist.group.WORLD
    )
    assert [len(t) for t in lists] == [2 * size, 3 * size]


def check_compiled() -> None:
    expected = functional(torch.ones(4))
    compiled = torch.compile(functional, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(4)), expected)


def test_functional_collectives(pool):
    pool.run(check_functional)


@pytest.mark.long
def test_compiled_collectives(pool):
    pool.run(check_compiled, deadline=240)


def check_checkpoint(folder: str) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(9)
    whole = torch.randn(10, 3)
    state = {"sharded": distribute_tensor(whole, mesh, [Shard(0)]), "step": 17}
    dcp.save(state, checkpoint_id=folder)
    loaded = {"sharded": distribute_tensor(torch.zeros(10, 3), mesh, [Shard(0)]), "step": 0}
    dcp.load(loaded, checkpoint_id=folder)
    torch.testing.assert_close(loaded["sharded"].full_tensor(), whole)
    assert loaded["step"] == 17
    future = dcp.async_save(state, checkpoint_id=folder + "-async")
    future.result(timeout=60)


def test_checkpoint(pool, tmp_path: Path):
    pool.run(check_checkpoint, str(tmp_path / "checkpoint"))


def check_distributed_nn() -> None:
    import torch.distributed.nn.functional as dnn

    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.full((3,), float(rank), requires_grad=True)
    (dnn.all_reduce(x * 2) ** 2).sum().backward()
    total = 2 * sum(range(size))
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0 * 2 * total * size))
    y = torch.ones(2, requires_grad=True)
    sum(t.sum() for t in dnn.all_gather(y)).backward()
    torch.testing.assert_close(y.grad, torch.full((2,), float(size)))


def test_collectives_with_gradients(pool):
    pool.run(check_distributed_nn)
