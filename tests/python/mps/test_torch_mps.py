"""torch.distributed on MPS tensors: every collective, with shared and with private memory.

The device is a double of a Mac's GPU. Nothing may touch its memory before the event.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from fake_device import load, watched

POOLS = ["shared", pytest.param("private", marks=pytest.mark.long)]
pytestmark = pytest.mark.parametrize("pool", POOLS, indirect=True, scope="module")

TYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
]
SIZES = [0, 1, 7, 1000, 100_003]


def numbers(rank: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns small whole numbers on the CPU, whose sums are exact in every type."""
    return ((torch.arange(count) + rank) % 5).to(dtype)


def on_gpu(values: torch.Tensor) -> torch.Tensor:
    """Copies the values to the device, which first writes ones and zeros to the same memory.

    A read before the copy therefore gives wrong values.
    """
    made = torch.ones_like(values, device="mps")
    made.zero_()
    return made.copy_(values)


def equal(found: torch.Tensor, expected: torch.Tensor) -> bool:
    assert found.device.type == "mps"
    return torch.equal(found.cpu(), expected)


def every_rank(count: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [numbers(r, count, dtype) for r in range(dist.get_world_size())]


# --- Sums -----------------------------------------------------------------------------------------


def check_all_reduce(dtype: torch.dtype) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    operations = [dist.ReduceOp.SUM]
    if dtype != torch.bool:
        operations += [dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.AVG]
    with watched():
        for count in SIZES:
            for operation in operations:
                data, alike = on_gpu(numbers(rank, count, dtype)), numbers(rank, count, dtype)
                dist.all_reduce(data, operation)
                dist.all_reduce(alike, operation)  # the result on the CPU, which other tests check
                assert equal(data, alike), (count, operation)
        whole = on_gpu(numbers(rank, 6 * size, dtype))
        part = torch.zeros(6, dtype=dtype, device="mps")
        dist.reduce_scatter_tensor(part, whole)
        summed = numbers(rank, 6 * size, dtype)
        dist.all_reduce(summed)
        assert equal(part, summed[6 * rank : 6 * (rank + 1)])
        for root in range(size):
            data = on_gpu(numbers(rank, 100, dtype))
            dist.reduce(data, root)
            alike = numbers(rank, 100, dtype)
            dist.all_reduce(alike)
            assert equal(data, alike if rank == root else numbers(rank, 100, dtype))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_sums_of_every_type(pool, dtype):
    pool.run(check_all_reduce, dtype)


def check_lists() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    with watched():
        several = [on_gpu(numbers(rank, 5)), on_gpu(numbers(rank, 12).view(3, 4))]
        dist.all_reduce_coalesced(several)
        assert equal(several[0], sum(every_rank(5)))
        assert equal(several[1], sum(every_rank(12)).view(3, 4))
        parts = [on_gpu(numbers(rank, 100 * (r + 1))) for r in range(size)]
        out = torch.zeros(100 * (rank + 1), device="mps")
        dist.reduce_scatter(out, parts)
        assert equal(out, sum(every_rank(100 * (rank + 1))))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_lists_of_tensors(pool):
    pool.run(check_lists)


# --- Calls that move data -------------------------------------------------------------------------


def check_moves() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    with watched():
        for count in SIZES:
            every = every_rank(count)
            mine = on_gpu(every[rank])
            whole = torch.zeros(size * count, device="mps")
            dist.all_gather_into_tensor(whole, mine)
            assert equal(whole, torch.cat(every))
            parts = [torch.zeros_like(mine) for _ in range(size)]
            dist.all_gather(parts, mine)
            assert all(equal(a, b) for a, b in zip(parts, every, strict=True))
            back = torch.zeros_like(whole)
            dist.all_to_all_single(back, whole)
            assert equal(back, every[rank].repeat(size))
            dist.all_to_all(parts, [on_gpu(every[rank]) for _ in range(size)])
            assert all(equal(a, b) for a, b in zip(parts, every, strict=True))
            for root in range(size):
                data = on_gpu(every[rank])
                dist.broadcast(data, root)
                assert equal(data, every[root])
                dist.gather(mine, parts if rank == root else None, root)
                if rank == root:
                    assert all(equal(a, b) for a, b in zip(parts, every, strict=True))
                out = torch.zeros_like(mine)
                given = [on_gpu(one) for one in every]
                dist.scatter(out, given if rank == root else None, root)
                assert equal(out, every[rank])
            # The input is this rank's slot of the output.
            whole[rank * count : (rank + 1) * count] = mine
            dist.all_gather_into_tensor(whole, whole[rank * count : (rank + 1) * count])
            assert equal(whole, torch.cat(every))


def test_calls_that_move_data(pool):
    pool.run(check_moves)


def check_uneven() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    with watched():
        every = [numbers(r, 100 * r, torch.int32) for r in range(size)]
        parts = [torch.zeros_like(one, device="mps") for one in every]
        dist.all_gather(parts, on_gpu(every[rank]))
        assert all(equal(a, b) for a, b in zip(parts, every, strict=True))
        given = [rank + peer for peer in range(size)]
        rows = torch.full((sum(given), 3), float(rank), device="mps")
        taken = torch.zeros(sum(given), 3, device="mps")
        dist.all_to_all_single(taken, rows, given, given)
        for peer, piece in enumerate(taken.cpu().split(given)):
            assert piece.eq(peer).all()


def test_uneven_parts(pool):
    pool.run(check_uneven)


def check_mixed_memory(shared: bool) -> None:
    """torch 2.11 shares memory of up to 8 bytes with the host, and no other memory."""
    rank, size = dist.get_rank(), dist.get_world_size()
    counts = [1_000_000] * size
    counts[0] = 2
    try:
        parts = []
        for count in counts:
            load().set_shared(count == 2)
            parts.append(on_gpu(numbers(rank, count)))
        load().set_shared(counts[rank] == 2)
        out = torch.zeros(counts[rank], device="mps")
        with watched():
            dist.reduce_scatter(out, parts)
            assert equal(out, sum(every_rank(counts[rank])))
        load().set_shared(rank == 0)
        given = [2 if peer == 0 else 300_000 for peer in range(size)]
        taken = [given[rank]] * size
        out = torch.zeros(sum(taken), device="mps")
        load().set_shared(False)
        with watched():
            dist.all_to_all_single(out, on_gpu(numbers(rank, sum(given))), taken, given)
        place = sum(given[:rank])
        expected = [numbers(r, sum(given))[place : place + given[rank]] for r in range(size)]
        assert equal(out, torch.cat(expected))
    finally:
        load().set_shared(shared)


def test_memory_of_both_kinds_in_one_call(pool, request):
    pool.run(check_mixed_memory, request.node.callspec.params["pool"] == "shared")


def check_strided() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    with watched():
        whole = torch.zeros(16, 33, device="mps")
        view = whole[:, 1::2].t()
        view.fill_(rank + 1.0)
        encoded = load().counts()["encoded"]
        work = dist.all_reduce(view, async_op=True)
        given = load().counts()["encoded"]
        work.wait()
        assert load().counts()["encoded"] == given, "the result came by torch's stream"
        assert given > encoded
        assert view.cpu().eq(size * (size + 1) / 2).all()
        assert whole[:, ::2].cpu().eq(0).all()
        rows = on_gpu(numbers(rank, 12).view(3, 4)).t()
        dist.broadcast(rows, 1)
        assert equal(rows, numbers(1, 12).view(3, 4).t())
        # The input overlaps the output, so it is copied first.
        memory = on_gpu(numbers(rank, size * 4 + 2))
        mine = memory[1:5].cpu()
        dist.all_gather_into_tensor(memory[2:], memory[1:5])
        every = [numbers(r, size * 4 + 2)[1:5] for r in range(size)]
        assert torch.equal(every[rank], mine)
        assert equal(memory[2:], torch.cat(every))


def test_strided_and_overlapping_tensors(pool):
    pool.run(check_strided)


# --- Messages and batches -------------------------------------------------------------------------


def check_messages() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    before, after = (rank - 1) % size, (rank + 1) % size
    with watched():
        for count in (1, 100_000):
            got = torch.zeros(count, device="mps")
            mine = torch.full((count,), float(rank), device="mps")
            operations = [dist.P2POp(dist.irecv, got, before), dist.P2POp(dist.isend, mine, after)]
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            assert got.cpu().eq(before).all()
            receive = dist.irecv(got, after, tag=3)
            dist.send(mine, before, tag=3)
            receive.wait()
            assert got.cpu().eq(after).all()
        # The delayed zeros of an output must not overwrite the received values.
        for _ in range(20):
            got = torch.zeros(1000, device="mps")
            receive = dist.irecv(got, before)
            dist.send(torch.full((1000,), float(rank), device="mps"), after)
            receive.wait()
            assert got.cpu().eq(before).all()
        if rank == 0:
            found = {dist.recv(got) for _ in range(size - 1)}
            assert found == set(range(1, size))
        else:
            dist.send(torch.full((1000,), float(rank), device="mps"), 0)


def test_messages(pool):
    pool.run(check_messages)


# --- Order and waiting ----------------------------------------------------------------------------


def check_nobody_waits() -> None:
    size = dist.get_world_size()
    fake = load()
    with watched() as done:
        fake.hold(True)
        data = torch.ones(1000, device="mps")
        work = dist.all_reduce(data, async_op=True)
        assert not work.is_completed()
        fake.hold(False)
        work.wait()
        assert work.is_completed()
        assert data.cpu().eq(size).all()
    assert done["events"] == 1


def test_a_call_begins_when_the_device_reaches_it(pool):
    pool.run(check_nobody_waits)


def check_one_fence_each() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    fake = load()
    with watched() as done:
        data = torch.ones(4, device="mps")  # too small to be copied in pieces
        for _ in range(5):
            data.mul_(1)  # gives each call new work to wait for
            dist.all_reduce(data)
        assert data.cpu().eq(size**5).all()
        whole = torch.zeros(4 * size, device="mps")
        dist.all_gather_into_tensor(whole, data)
    assert done["events"] == 6
    copied = 0 if fake.host_address(torch.ones(1, device="mps")) else 12
    assert done["copies"] == copied, rank


def test_fault_29_a_call_has_one_fence_and_shared_memory_is_used_where_it_lies(pool):
    pool.run(check_one_fence_each)


def check_barrier() -> None:
    fake = load()
    dist.all_reduce(torch.ones(1, device="mps"))
    with watched():
        fake.hold(True)
        late = torch.ones(100, device="mps")
        work = dist.barrier(async_op=True)
        with pytest.raises(RuntimeError, match="imed out"):
            work.wait(__import__("datetime").timedelta(milliseconds=50))
        fake.hold(False)
        work.wait()
        if address := fake.host_address(late):
            assert __import__("ctypes").c_float.from_address(address).value == 1.0
    dist.barrier()


def test_a_barrier_is_behind_what_the_device_had_to_do(pool):
    pool.run(check_barrier)


def check_future() -> None:
    size = dist.get_world_size()
    with watched():
        data = torch.ones(10_000, device="mps")
        future = dist.all_reduce(data, async_op=True).get_future()
        assert future.wait()[0].cpu().eq(size).all()
        for _ in range(50):  # dropped tensors stay valid until their calls are over
            dist.all_reduce(torch.ones(1000, device="mps"), async_op=True)
        dist.barrier()


def test_futures_and_tensors_that_are_dropped(pool):
    pool.run(check_future)


def check_order_of_both_kinds() -> None:
    size = dist.get_world_size()
    with watched():
        on_device, on_cpu = torch.ones(30_000, device="mps"), torch.ones(10)
        for _ in range(5):
            work = dist.all_reduce(on_device, async_op=True)
            dist.all_reduce(on_cpu)
            work.wait()
            on_device /= size
            on_cpu /= size
        assert on_cpu.eq(1).all() and on_device.cpu().eq(1).all()
        # One rank's tensor is on the device, and the other ranks' tensors are on the host.
        mixed = torch.ones(100, device="mps" if dist.get_rank() == 0 else "cpu")
        dist.all_reduce(mixed)
        assert mixed.cpu().eq(size).all()


def test_calls_of_both_kinds_keep_their_order(pool):
    pool.run(check_order_of_both_kinds)


# --- DDP, FSDP, groups and functional collectives -------------------------------------------------


def train(model: torch.nn.Module, where: str, parts: int, part: int) -> list[float]:
    """Trains for a few steps on this part of the data and returns the losses."""
    everything = torch.randn(6 * parts, 10, generator=torch.Generator().manual_seed(1))
    inputs = everything[6 * part : 6 * (part + 1)].to(where)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (model(inputs) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(10, 33), torch.nn.ReLU(), torch.nn.Linear(33, 3))


def trained_alone() -> dict[str, torch.Tensor]:
    """Returns the state after training on all the data, on the CPU."""
    model = network()
    train(model, "cpu", 1, 0) if dist.get_world_size() == 1 else _train_on_all(model)
    return model.state_dict()


def _train_on_all(model: torch.nn.Module) -> None:
    size = dist.get_world_size()
    inputs = torch.randn(6 * size, 10, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        (model(inputs) - 1).square().mean().backward()
        optimizer.step()


def check_ddp() -> None:
    from torch.nn.parallel import DistributedDataParallel

    with watched():
        model = DistributedDataParallel(network().to("mps"), bucket_cap_mb=0.0005)
        losses = train(model, "mps", dist.get_world_size(), dist.get_rank())
        assert losses[-1] < losses[0]
        for name, expected in trained_alone().items():
            found = model.module.state_dict()[name].cpu()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_ddp(pool):
    pool.run(check_ddp)


def check_fsdp2(dtype: torch.dtype) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with watched():
        model = network().to("mps")
        mesh = init_device_mesh("mps", (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        losses = train(model, "mps", dist.get_world_size(), dist.get_rank())
        assert losses[-1] < losses[0]
        tolerance = 1e-4 if dtype == torch.float32 else 3e-2
        for name, expected in trained_alone().items():
            found = model.state_dict()[name].full_tensor().cpu()
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fsdp2(pool, dtype):
    pool.run(check_fsdp2, dtype)


def check_groups() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    with watched():
        pair = dist.new_group([0, size - 1])
        if rank in (0, size - 1):
            data = torch.ones(100, device="mps")
            dist.all_reduce(data, group=pair)
            assert data.cpu().eq(2).all()
        part = dist.group.WORLD.split_group([0, 1] if rank < 2 else list(range(2, size)))
        data = torch.ones(100, device="mps")
        part.allreduce([data]).wait()
        assert data.cpu().eq(2 if rank < 2 else size - 2).all()
        dist.barrier()


def test_sub_groups(pool):
    pool.run(check_groups)


def check_functional() -> None:
    import torch.distributed._functional_collectives as functional

    size = dist.get_world_size()
    group = dist.group.WORLD
    with watched():
        total = functional.all_reduce(torch.ones(100, device="mps"), "sum", group)
        assert (total + 0).cpu().eq(size).all()
        whole = functional.all_gather_tensor(torch.ones(4, device="mps"), 0, group)
        assert functional.wait_tensor(whole).shape[0] == 4 * size
        found = [None] * size
        dist.all_gather_object(found, {"rank": dist.get_rank()})
        assert [one["rank"] for one in found] == list(range(size))


def test_functional_and_object_collectives(pool):
    pool.run(check_functional)


def check_refusals() -> None:
    size = dist.get_world_size()
    with watched():
        data = torch.ones(10, device="mps")
        with pytest.raises(ValueError, match="device"):
            dist.all_gather([torch.ones(10) for _ in range(size)], data)
        load().set_stream(3)
        try:
            with pytest.raises(ValueError, match="not the default stream of MPS"):
                dist.all_reduce(data)
        finally:
            load().set_stream(0)
        dist.all_reduce(data)
        assert data.cpu().eq(size).all()


def test_impossible_calls_are_refused(pool):
    pool.run(check_refusals)
