"""Every collective, compared with the result that one process computes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]
BYTES_ONLY = [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32]
SIZES = [0, 1, 5, 1000, 70001]


def data_of(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns small whole numbers, whose sums are exact in any order and type."""
    values = (torch.arange(count, dtype=torch.int64) * 7 + rank * 3) % 5
    if dtype is torch.bool:
        return values > 2
    if dtype.is_complex:
        return torch.complex(values.double(), (values + rank).double()).to(dtype)
    return values.to(dtype)


def all_data(count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [data_of(rank, count, dtype) for rank in range(dist.get_world_size())]


def reduced(inputs: list[torch.Tensor], op) -> torch.Tensor:
    """Reduces in a wider type and converts the result to the type of the inputs."""
    dtype = inputs[0].dtype
    if dtype is torch.bool:
        wide = torch.stack([x.to(torch.int64) for x in inputs])
        whole = {ReduceOp.SUM: wide.amax, ReduceOp.MAX: wide.amax, ReduceOp.BOR: wide.amax}
        alike = {ReduceOp.PRODUCT: wide.amin, ReduceOp.MIN: wide.amin, ReduceOp.BAND: wide.amin}
        if op in whole or op in alike:
            return (whole | alike)[op](0).bool()
        return (wide.sum(0) % 2).bool()
    wider = torch.complex128 if dtype.is_complex else torch.float64
    if not dtype.is_floating_point and not dtype.is_complex:
        wider = torch.int64
    wide = [x.to(wider) for x in inputs]
    result = wide[0].clone()
    for x in wide[1:]:
        if op in (ReduceOp.SUM, ReduceOp.AVG):
            result = result + x
        elif op == ReduceOp.PRODUCT:
            result = result * x
        elif op == ReduceOp.MIN:
            result = torch.minimum(result, x)
        elif op == ReduceOp.MAX:
            result = torch.maximum(result, x)
        elif op == ReduceOp.BAND:
            result = result & x
        elif op == ReduceOp.BOR:
            result = result | x
        elif op == ReduceOp.BXOR:
            result = result ^ x
    if op == ReduceOp.AVG:
        count = len(inputs)
        result = result // count if wider is torch.int64 else result / count
    return result.to(dtype)


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert torch.equal(bits(found), bits(expected)), f"{found} is not {expected}"


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().contiguous().reshape(-1).view(torch.uint8)


def run_over(sizes, dtypes, check) -> None:
    for dtype in dtypes:
        for count in sizes:
            check(count, dtype)


# --- reductions ---------------------------------------------------------------------------------


def check_all_reduce(op_name: str, dtypes, sizes) -> None:
    op = getattr(ReduceOp, op_name)

    def check(count, dtype):
        inputs = all_data(count, dtype)
        tensor = inputs[dist.get_rank()].clone()
        dist.all_reduce(tensor, op)
        same(tensor, reduced(inputs, op))

    run_over(sizes, dtypes, check)


@pytest.mark.parametrize(
    ("op", "dtypes"),
    [
        ("SUM", DTYPES),
        ("PRODUCT", DTYPES),
        ("AVG", [*INTEGERS, torch.float32, torch.float64]),
        ("MIN", [torch.bool, *INTEGERS, *FLOATS]),
        ("MAX", [torch.bool, *INTEGERS, *FLOATS]),
        ("BAND", [torch.bool, *INTEGERS]),
        ("BOR", [torch.bool, *INTEGERS]),
        ("BXOR", [torch.bool, *INTEGERS]),
    ],
)
def test_all_reduce(pool, op, dtypes):
    complex_free = [t for t in dtypes if not t.is_complex or op == "SUM"]
    pool.run(check_all_reduce, op, complex_free, SIZES)


def check_complex_product() -> None:
    # dist.all_reduce views complex numbers as real ones and refuses PRODUCT. The group itself
    # accepts it.
    inputs = all_data(100, torch.complex128)
    tensor = inputs[dist.get_rank()].clone()
    options = dist.AllreduceOptions()
    options.reduceOp = ReduceOp.PRODUCT
    dist.group.WORLD.allreduce([tensor], options).wait()
    torch.testing.assert_close(tensor, reduced(inputs, ReduceOp.PRODUCT))


def test_all_reduce_of_complex_products(pool):
    pool.run(check_complex_product)


def check_premul_sum() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in FLOATS:
        inputs = all_data(1000, dtype)
        for factor in (0.5, torch.tensor([0.5])):
            tensor = inputs[rank].clone()
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
            expected = sum(x.double() * 0.5 for x in inputs).to(dtype)
            same(tensor, expected)
        part = torch.empty(1000 // size, dtype=dtype)
        dist.reduce_scatter_tensor(part, inputs[rank].clone(), dist._make_nccl_premul_sum(0.25))
        expected = sum(x.double() * 0.25 for x in inputs).to(dtype)
        same(part, expected.chunk(size)[rank])


def test_premul_sum_with_a_number_and_a_tensor(pool):
    pool.run(check_premul_sum)


def check_reduce(sizes) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for root in range(size):
        for count in sizes:
            inputs = all_data(count, torch.float32)
            tensor = inputs[rank].clone()
            dist.reduce(tensor, root)
            if rank == root:
                same(tensor, reduced(inputs, ReduceOp.SUM))


def test_fault_22_reduce_to_every_root(pool):
    pool.run(check_reduce, SIZES)


def check_reduce_scatter(dtype, op_name: str) -> None:
    op = getattr(ReduceOp, op_name)
    rank, size = dist.get_rank(), dist.get_world_size()
    for part in (0, 1, 7, 5000):
        inputs = all_data(part * size, dtype)
        expected = reduced(inputs, op).narrow(0, part * rank, part)
        whole = inputs[rank].clone()
        output = torch.empty(part, dtype=dtype)
        dist.reduce_scatter_tensor(output, whole, op)
        same(output, expected)
        same(whole, inputs[rank])  # fault 6: the input is unchanged
        dist.reduce_scatter(
            output.zero_(),
            list(inputs[rank].clone().chunk(size))
            if part
            else [torch.empty(0, dtype=dtype)] * size,
            op,
        )
        same(output, expected)
        in_place = inputs[rank].clone()
        dist.reduce_scatter_tensor(in_place.narrow(0, part * rank, part), in_place, op)
        same(in_place.narrow(0, part * rank, part), expected)


@pytest.mark.parametrize("op", ["SUM", "AVG", "MAX"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_reduce_scatter(pool, dtype, op):
    pool.run(check_reduce_scatter, dtype, op)


def check_reduce_scatter_avg_of_two() -> None:
    pair = dist.new_group([0, 1])
    rank = dist.get_rank()
    if rank < 2:
        whole = torch.tensor([1.0, 2.0, 3.0, 4.0]) * (rank + 1)
        output = torch.empty(2)
        dist.reduce_scatter_tensor(output, whole, ReduceOp.AVG, group=pair)
        same(output, torch.tensor([1.5, 3.0] if rank == 0 else [4.5, 6.0]))
        same(whole, torch.tensor([1.0, 2.0, 3.0, 4.0]) * (rank + 1))


def test_fault_06_reduce_scatter_avg_divides_and_keeps_its_input(pool):
    pool.run(check_reduce_scatter_avg_of_two)


def check_uneven_lists() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    lengths = [3, 0, 5, 1][:size]
    outputs = [torch.zeros(n) for n in lengths]
    dist.all_gather(outputs, torch.full((lengths[rank],), float(rank)))
    for peer, output in enumerate(outputs):
        same(output, torch.full((lengths[peer],), float(peer)))
    inputs = [torch.full((n,), float(rank + i)) for i, n in enumerate(lengths)]
    output = torch.zeros(lengths[rank])
    dist.reduce_scatter(output, inputs)
    same(output, torch.full((lengths[rank],), float(sum(range(size)) + size * rank)))


def test_uneven_all_gather_and_reduce_scatter(pool):
    pool.run(check_uneven_lists)


# --- moving data --------------------------------------------------------------------------------


def check_moves(dtype) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in (0, 1, 6, 3001):
        inputs = [
            x.to(torch.float32).to(dtype) if dtype in BYTES_ONLY else x
            for x in all_data(count, torch.uint8 if dtype in BYTES_ONLY else dtype)
        ]
        mine = inputs[rank]
        for root in range(size):
            tensor = mine.clone()
            dist.broadcast(tensor, root)
            same(tensor, inputs[root])
        outputs = [torch.empty_like(x) for x in inputs]
        dist.all_gather(outputs, mine.clone())
        for output, expected in zip(outputs, inputs, strict=True):
            same(output, expected)
        flat = torch.empty(count * size, dtype=dtype)
        dist.all_gather_into_tensor(flat, mine.clone())
        same(flat, torch.cat([bits(x) for x in inputs]).view(dtype) if count else flat)
        gathered = [torch.empty_like(x) for x in inputs] if rank == 1 else None
        dist.gather(mine.clone(), gathered, dst=1)
        for output, expected in zip(gathered or [], inputs, strict=rank == 1):
            same(output, expected)
        output = torch.empty_like(mine)
        dist.scatter(output, [x.clone() for x in inputs] if rank == 2 else None, src=2)
        same(output, inputs[rank])


@pytest.mark.parametrize("dtype", DTYPES + BYTES_ONLY, ids=str)
def test_fault_22_gather_scatter_and_other_moves(pool, dtype):
    pool.run(check_moves, dtype)


def check_all_to_all(dtype) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    # Rank a sends b + 1 rows of value 10 a + b to rank b, and no rows to itself.
    rows = [0 if b == rank else b + 1 for b in range(size)]
    inputs = [torch.full((n, 2), 10 * rank + b, dtype=dtype) for b, n in enumerate(rows)]
    expected = [
        torch.full((0 if a == rank else rank + 1, 2), 10 * a + rank, dtype=dtype)
        for a in range(size)
    ]
    outputs = [torch.zeros_like(x) for x in expected]
    dist.all_to_all(outputs, inputs)
    for output, right in zip(outputs, expected, strict=True):
        same(output, right)
    output = torch.zeros(sum(len(x) for x in expected), 2, dtype=dtype)
    dist.all_to_all_single(output, torch.cat(inputs), [len(x) for x in expected], rows)
    same(output, torch.cat(expected))
    equal = torch.arange(size * 3).to(dtype) + rank
    output = torch.empty_like(equal)
    # Empty splits on some ranks and equal splits on others mean the same.
    splits = [3] * size if rank % 2 else None
    dist.all_to_all_single(output, equal, splits, splits)
    same(output, torch.cat([(torch.arange(3) + 3 * rank).to(dtype) + a for a in range(size)]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8], ids=str)
def test_fault_22_all_to_all(pool, dtype):
    pool.run(check_all_to_all, dtype)


def check_calls_of_fsdp() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    whole = torch.zeros(size * 3)
    group._allgather_base(whole, torch.full((3,), float(rank))).wait()
    same(whole, torch.arange(float(size)).repeat_interleave(3))
    part = torch.zeros(3)
    group._reduce_scatter_base(part, whole + rank).wait()
    same(part, torch.full((3,), float(size * rank + sum(range(size)))))
    flags = torch.tensor([1 << rank, 0b1110 | rank], dtype=torch.int32)
    for op, expected in (
        (ReduceOp.BOR, [0b1111, 0b1111]),
        (ReduceOp.BAND, [0, 0b1110]),
        (ReduceOp.BXOR, [0b1111, 0]),
    ):
        found = flags.clone()
        dist.all_reduce(found, op)
        same(found, torch.tensor(expected, dtype=torch.int32))


def test_fault_22_base_calls_and_bitwise_reductions(pool):
    pool.run(check_calls_of_fsdp)


def check_strided() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    base = torch.arange(24.0).reshape(4, 6)
    # The tensor is transposed on odd ranks: elements are matched by their index, not by their place
    # in memory.
    mine = (base + rank) if rank % 2 == 0 else (base + rank).t().contiguous().t()
    dist.all_reduce(mine)
    same(mine, base * size + sum(range(size)))
    holes = torch.zeros(10)
    every_second = holes[::2]
    every_second += rank
    dist.broadcast(every_second, 1)
    same(holes, torch.tensor([1.0, 0.0] * 5))
    columns = torch.zeros(3, size)
    dist.all_gather(list(columns.unbind(1)), torch.arange(3.0) + rank)
    same(columns, torch.arange(3.0)[:, None] + torch.arange(float(size))[None, :])
    wide = torch.zeros(size * 3, 2)
    dist.all_gather_into_tensor(wide[:, 0], torch.full((6,), float(rank))[::2])
    same(wide[:, 0], torch.arange(float(size)).repeat_interleave(3))
    same(wide[:, 1], torch.zeros(size * 3))
    part = torch.zeros(4)[::2]
    dist.reduce_scatter_tensor(part, torch.ones(size * 4)[::2])
    same(part, torch.full((2,), float(size)))
    received = torch.zeros(2 * size)
    dist.all_to_all_single(received[::2], torch.arange(float(2 * size))[::2] + 100 * rank)
    same(received[::2], torch.arange(float(size)) * 100 + 2 * rank)
    assert received[1::2].sum() == 0


def test_fault_08_strided_and_odd_tensors_come_back_whole(pool):
    pool.run(check_strided)
    pool.run(check_all_reduce, "SUM", [torch.float32, torch.bfloat16], [3, 257, 65537, 1048577])


def check_offsets() -> None:
    # Buckets are slices of a larger tensor and may have any alignment.
    for offset in range(1, 9):
        memory = torch.zeros(4096 + 9, dtype=torch.bfloat16)
        piece = memory[offset : offset + 4096]
        piece += dist.get_rank()
        dist.all_reduce(piece)
        assert (piece == sum(range(dist.get_world_size()))).all()
        assert memory[:offset].sum() == 0
        assert memory[offset + 4096 :].sum() == 0


def test_any_alignment(pool):
    pool.run(check_offsets)


def check_coalesced() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    tensors = [
        torch.full((n,), float(rank), dtype=t)
        for n, t in ((3, torch.float32), (5, torch.float64), (2, torch.float32))
    ]
    group.allreduce_coalesced(tensors).wait()
    for tensor in tensors:
        assert (tensor == sum(range(size))).all()
    inputs = [torch.full((2, 2), float(rank)), torch.full((3,), rank, dtype=torch.int64)]
    outputs = [[torch.empty_like(x) for x in inputs] for _ in range(size)]
    group.allgather_coalesced(outputs, inputs).wait()
    for peer, row in enumerate(outputs):
        assert all((x == peer).all() for x in row)
    with dist._coalescing_manager() as manager:
        first, second = torch.zeros(size * 2), torch.zeros(size, dtype=torch.int32)
        dist.all_gather_into_tensor(first, torch.full((2,), float(rank)))
        dist.all_gather_into_tensor(second, torch.full((1,), rank, dtype=torch.int32))
    del manager
    same(second, torch.arange(size, dtype=torch.int32))
    same(first, torch.arange(float(size)).repeat_interleave(2))
    part = [torch.zeros(1), torch.zeros(2)]
    whole = [torch.ones(size), torch.ones(2 * size)]
    options = dist.ReduceScatterOptions()
    group.reduce_scatter_tensor_coalesced(part, whole, options).wait()
    assert all((x == size).all() for x in part)


def test_coalesced_collectives(pool):
    pool.run(check_coalesced)


def check_objects() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    assert [x["rank"] for x in gathered] == list(range(size))
    shared = [rank, "of", size]
    dist.broadcast_object_list(shared, src=2)
    assert shared == [2, "of", size]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, 0)
    assert mine == [f"for {rank}"]
    collected = [None] * size if rank == 3 else None
    dist.gather_object(rank * 11, collected, dst=3)
    assert collected is None or collected == [0, 11, 22, 33]


def test_object_collectives(pool):
    pool.run(check_objects)


def check_sparse() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    count = 0 if rank == 1 else rank + 1
    indices = torch.stack([torch.arange(count), torch.arange(count) * 2])
    values = torch.ones(count, 3) * (rank + 1)
    tensor = torch.sparse_coo_tensor(indices, values, (8, 8, 3))
    expected = torch.zeros(8, 8, 3)
    for peer in range(size):
        for i in range(0 if peer == 1 else peer + 1):
            expected[i, 2 * i] += peer + 1
    future = dist.all_reduce(tensor, async_op=True).get_future()
    future.wait()
    same(future.value()[0].to_dense(), expected)
    same(tensor.to_dense(), expected)


def test_sparse_all_reduce(pool):
    pool.run(check_sparse)


def check_large(count: int) -> None:
    pair = dist.new_group([0, 1])
    rank = dist.get_rank()
    if rank < 2:
        tensor = torch.full((count,), rank, dtype=torch.uint8)
        tensor[-1] = 9 + rank
        dist.broadcast(tensor, 1, group=pair)
        assert tensor[-1] == 10
        assert tensor[:-1].min() == tensor[:-1].max() == 1


@pytest.mark.long
def test_more_than_two_gib(pool):
    pool.run(check_large, (2 << 30) + 5, deadline=200)


def check_default_dtype_orders() -> None:
    # Sums of floats that are not whole numbers also have the same bits on every rank.
    torch.manual_seed(dist.get_rank())
    for dtype in FLOATS:
        for count in (10, 20000, 400000):
            tensor = torch.randn(count).to(dtype)
            dist.all_reduce(tensor)
            everywhere = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
            dist.all_gather(everywhere, tensor)
            for other in everywhere:
                same(other, tensor)


def test_fault_01_every_rank_ends_with_the_same_bits(pool):
    pool.run(check_default_dtype_orders)


def test_fault_03_integers_and_bool_pass(pool):
    pool.run(check_all_reduce, "SUM", [torch.bool, torch.int32, torch.int64], [1, 10, 4096])
