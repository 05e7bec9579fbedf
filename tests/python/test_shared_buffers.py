"""Buffers in memory that the other ranks of the host read where it lies."""

import sys
from pathlib import Path

import pytest
from launching import environment, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has shared buffers")

#: Functions for the programs below. read_in_place(): bytes of other ranks' heaps that this rank has
#: read. is_shared(address): whether the address lies in this rank's own heap.
MAPPINGS = """
def mappings():
    lines = iter(open("/proc/self/smaps"))
    for line in lines:
        if "/memfd:mccl" in line:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            rss = next(int(l.split()[1]) for l in lines if l.startswith("Rss:"))
            yield begin, end, line.split()[1], rss << 10

def read_in_place():
    return sum(rss for _, _, access, rss in mappings() if access == "r--s")

def is_shared(address):
    # The rest of the heap, which is not in use, cannot be accessed.
    own = [(begin, end) for begin, end, access, _ in mappings() if access == "rw-s"]
    closed = {begin: end for begin, end, access, _ in mappings() if access == "---s"}
    return any(
        begin <= address < end and closed.get(end, 0) - end > 1 << 30 for begin, end in own
    )
"""

ARRAYS = (
    MAPPINGS
    + """
import random
import numpy as np
import mccl.distributed as dist

world = dist.init()
rank, size = world.rank, world.size
alike, mine = random.Random(1), random.Random(100 + rank)

def array(length, dtype=np.int64):
    "An array that some ranks share, and others do not."
    kind = {kind}
    if kind == "mixed":
        kind = mine.choice(["shared", "ordinary", "inside"])
    if kind == "inside":  # a part of a larger array, at an odd place
        return dist.empty(length + 1000, dtype)[77:77 + length]
    return (dist.empty if kind == "shared" else np.empty)(length, dtype)

def given(r, length):
    return (np.arange(length) * (r + 3)) % 1009 + r

def filled(length):
    data = array(length)
    data[:] = given(rank, length)
    return data

for turn in range(60):
    n = alike.choice([0, 1, 7, 1000, 9000, 70_000, 300_001, 700_000])
    root = alike.randrange(size)
    everyone = [given(r, n) for r in range(size)]
    total = sum(everyone)
    data, out = filled(n), array(n)
    world.all_reduce(data, out=out)
    assert (out == total).all(), ("all_reduce", n)
    assert (data == everyone[rank]).all()
    world.all_reduce(data, out=data)
    assert (data == total).all(), ("all_reduce in place", n)
    data, out = filled(n), array(n * size)
    world.all_gather(data, out=out)
    assert (out == np.concatenate(everyone)).all(), ("all_gather", n)
    data = filled(n)
    world.broadcast(data, root, out=data)
    assert (data == everyone[root]).all(), ("broadcast", n)
    data, out = filled(n), array(n)
    got = world.reduce(data, root=root, out=out if rank == root else None)
    if rank == root:
        assert (out == total).all(), ("reduce", n)
    whole = n // size * size
    data, out = filled(whole), array(whole // size)
    world.reduce_scatter(data, out=out)
    assert (out == total[:whole].reshape(size, -1)[rank]).all(), ("reduce_scatter", n)
    data, out = filled(whole), array(whole)
    world.all_to_all(data, out=out)
    expected = [part[:whole].reshape(size, -1)[rank] for part in everyone]
    assert (out == np.concatenate(expected)).all(), ("all_to_all", n)
    # A call that is in flight keeps its arrays; the next call may use the same memory.
    works = [world.all_reduce(filled(n), wait=False) for _ in range(3)]
    for work in works:
        assert (work.wait() == total).all(), ("in flight", n)
world.barrier()
print("rank", rank, "read in place:", read_in_place() > 1 << 20)
dist.shutdown()
kept = data.sum()  # arrays outlive the job
"""
)


def run_program(folder: Path, text: str, *, ranks: int = 3, **settings: str) -> str:
    script = folder / "program.py"
    script.write_text(text)
    done = run("-n", ranks, "--", sys.executable, script, env=environment(**settings))
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@pytest.mark.parametrize("kind", ["shared", "mixed"])
@pytest.mark.parametrize("algorithm", ["auto", "one_shot", "two_shot"])
def test_calls_give_the_same_results_in_shared_buffers(tmp_path, kind, algorithm):
    program = ARRAYS.replace("{kind}", repr(kind))
    out = run_program(tmp_path, program, MCCL_ALGORITHM=algorithm)
    assert out.count("read in place: True") == 3, out


def test_ordinary_arrays_are_not_read_in_place(tmp_path):
    out = run_program(tmp_path, ARRAYS.replace("{kind}", repr("ordinary")))
    assert out.count("read in place: False") == 3, out


def test_the_setting_turns_shared_buffers_off(tmp_path):
    program = ARRAYS.replace("{kind}", repr("shared"))
    out = run_program(tmp_path, program, MCCL_SHARED_BUFFERS="false")
    assert out.count("read in place: False") == 3, out


LIMITED = """
import os, resource
if os.environ["MCCL_RANK"] == "1":
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
"""


@pytest.mark.parametrize("kind", ["ordinary", "shared"])
def test_a_process_with_little_address_space_uses_none_for_heaps(tmp_path, kind):
    """Then no rank is read in place, and memory that one rank cannot share is ordinary memory."""
    out = run_program(tmp_path, LIMITED + ARRAYS.replace("{kind}", repr(kind)))
    assert out.count("read in place: False") == 3, out


def test_arrays_are_checked(tmp_path):
    program = """
import numpy as np
import mccl.distributed as dist

try:
    dist.empty(3)
except dist.InvalidArgument as error:
    print(error)
dist.init()
huge = (1 << 40, 1 << 40)
for arguments in ((-1,), ((2, -3),), (4, object), (3, "S0"), (1 << 65,), (huge, "i1")):
    try:
        dist.empty(*arguments)
    except dist.InvalidArgument as error:
        print(error)
assert dist.empty((2, 3), "int16").shape == dist.empty([np.int32(2), 3]).shape == (2, 3)
assert dist.empty(np.int64(0)).size == 0
try:
    dist.empty(1 << 50)
except dist.Error as error:
    print(type(error).__name__, error)
"""
    out = run_program(tmp_path, program, ranks=2)
    for expected, count in {
        "call init() first": 1,
        "negative length": 2,
        "no plain memory": 2,
        "is too large": 2,
        "cannot allocate": 1,
    }.items():
        assert out.count(expected) == 2 * count, (expected, out)


TENSORS = (
    MAPPINGS
    + """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import mccl

try:
    mccl.empty(3)
except ValueError as error:
    assert "init_process_group" in str(error), error
dist.init_process_group("mccl")
rank, size = dist.get_rank(), dist.get_world_size()

# Tensors of mccl.empty().
data = mccl.empty(3, 100_000, dtype=torch.float64)
assert data.shape == (3, 100_000) and is_shared(data.data_ptr())
data.fill_(rank + 1)
dist.all_reduce(data)
assert (data == size * (size + 1) / 2).all()
for wrong, reason in (
    ((2**61 + 1,), "too large"),
    ((2**70,), "too large"),
    ((-1, -1), "negative length"),
    ((0, -1), "negative length"),
):
    try:
        mccl.empty(*wrong, dtype=torch.float64)
    except ValueError as error:
        assert reason in str(error), error
    else:
        raise AssertionError(wrong)
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
try:
    backend.allocate_tensor(2**61 + 1, dtype=torch.float64, device=torch.device("cpu"))
except ValueError as error:
    assert "too large" in str(error), error
else:
    raise AssertionError("a tensor that fits no memory")
assert mccl.empty(3, device="cpu:0").numel() == mccl.empty(torch.tensor(3)).numel() == 3
assert mccl.empty((2, 5)).shape == (2, 5) and mccl.empty(0).numel() == 0
half = dist.new_group(range(size))
assert is_shared(mccl.empty(5, group=half).data_ptr())

# Memory that is freed while a call is in flight, and used by the next call.
for turn in range(20):
    works = []
    for k in range(3):
        tensor = mccl.empty(200_000).fill_(rank + k)
        works.append((k, tensor.clone(), dist.all_reduce(tensor, async_op=True), tensor))
        del tensor
    for k, _, work, tensor in works:
        work.wait()
        assert (tensor == sum(r + k for r in range(size))).all()

# A tensor that grows moves to ordinary memory, and keeps its elements.
grown = mccl.empty(1000).fill_(7)
grown.resize_(1_000_000)
assert not is_shared(grown.data_ptr()) and (grown[:1000] == 7).all()
grown.resize_(10)

# A forked child reads the memory; when it ends, the parent's memory stays.
if (child := os.fork()) == 0:
    good = bool((data == size * (size + 1) / 2).all())
    del data
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
assert (data == size * (size + 1) / 2).all()

# DDP and FSDP2 allocate their buffers so where they are told to.
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1000, 1000), gradient_as_bucket_view=True)
shared = []

def hook(state, bucket):
    shared.append(is_shared(bucket.buffer().data_ptr()))
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0] / size)

model.register_comm_hook(None, hook)
for _ in range(3):
    model(torch.ones(4, 1000) * rank).sum().backward()
assert shared and all(shared), shared
expected = sum(4 * r for r in range(size)) * 3 / size
grad = model.module.weight.grad
assert is_shared(grad.data_ptr())
print("rank", rank, "gradient", grad[0, 0].item(), "expected", expected)

from torch.distributed.fsdp import fully_shard
layers = torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(3)))
reference = torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(3)))
reference.load_state_dict(layers.state_dict())
for layer in layers:
    fully_shard(layer)
fully_shard(layers)
for module in [layers, *layers]:
    module.set_allocate_memory_from_process_group_for_comm(True)
before = read_in_place()
for _ in range(3):
    x = torch.ones(4, 300)
    layers(x).sum().backward()
    reference(x).sum().backward()
for ours, theirs in zip(layers.parameters(), reference.parameters()):
    assert torch.allclose(ours.grad.full_tensor(), theirs.grad, rtol=1e-4), "FSDP2"
dist.barrier()
print("rank", rank, "is done; read in place:", read_in_place() > 1 << 20)
dist.destroy_process_group()
data.add_(1)  # tensors outlive the group
"""
)


def test_torch_allocates_its_buffers_so(tmp_path):
    pytest.importorskip("torch")
    out = run_program(tmp_path, TENSORS, ranks=2, DDP_DISABLE_COMM_MEM="0")
    assert out.count("is done; read in place: True") == 2, out


def test_ddp_with_little_address_space(tmp_path):
    """DDP is told to use shared buckets, which one rank cannot map."""
    pytest.importorskip("torch")
    program = """
import resource
import torch
import torch.distributed as dist
import mccl

dist.init_process_group("mccl")
model = torch.nn.Linear(500, 500)
if dist.get_rank() == 1:
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
model = torch.nn.parallel.DistributedDataParallel(model)
model(torch.ones(4, 500) * dist.get_rank()).sum().backward()
assert (model.module.weight.grad == 2).all()
print("done")
dist.destroy_process_group()
"""
    assert run_program(tmp_path, program, ranks=2, DDP_DISABLE_COMM_MEM="0").count("done") == 2


def test_torch_without_shared_buffers(tmp_path):
    """With the setting off, torch uses its own allocator."""
    pytest.importorskip("torch")
    program = """
import torch
import torch.distributed as dist
import mccl

dist.init_process_group("mccl")
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
print("supported:", backend.supports_tensor_alloc(torch.device("cpu")))
assert mccl.empty(10).fill_(1).sum() == 10
dist.destroy_process_group()
"""
    assert run_program(tmp_path, program, ranks=2).count("supported: True") == 2
    off = run_program(tmp_path, program, ranks=2, MCCL_SHARED_BUFFERS="false")
    assert off.count("supported: False") == 2
    assert run_program(tmp_path, program, ranks=1).count("supported: False") == 1
