"""Groups: making and destroying them, shared connections, and fork()."""

from __future__ import annotations

import copy
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from free_port import free_port
from rank_pool import TIMEOUT, RankPool

CPU = torch.device("cpu")


def total(group=None) -> float:
    tensor = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def check_overlapping() -> None:
    rank = dist.get_rank()
    members = [[0, 1], [1, 2], [2, 3], [3, 0], [0, 1, 2, 3], [3, 1]]
    groups = [dist.new_group(m) for m in members]
    for _ in range(3):
        for group, ranks in zip(groups, members, strict=True):
            if rank in ranks:
                assert total(group) == sum(ranks)
    # Independent groups may be used in a different order on each rank.
    works = []
    mine = [i for i, ranks in enumerate(members) if rank in ranks]
    for i in mine if rank % 2 else reversed(mine):
        tensor = torch.full((1000,), float(rank))
        works.append((i, tensor, dist.all_reduce(tensor, group=groups[i], async_op=True)))
    for i, tensor, work in works:
        work.wait()
        assert tensor.eq(sum(members[i])).all()
    for group, ranks in zip(groups, members, strict=True):
        if rank in ranks:
            dist.destroy_process_group(group)
    assert total() == 6


def test_fault_23_new_groups_share_the_listener(pool):
    pool.run(check_overlapping)


def check_ranks_of_subgroup() -> None:
    group = dist.new_group([3, 1])
    if dist.get_rank() in (1, 3):
        # new_group sorts its ranks.
        assert dist.get_group_rank(group, 1) == 0
        tensor = torch.tensor([dist.get_rank()])
        dist.broadcast(tensor, 3, group=group)
        assert tensor.item() == 3
        if dist.get_rank() == 1:
            dist.send(torch.tensor([5]), 3, group=group)
        else:
            assert dist.recv(tensor, group=group) == 1
            assert tensor.item() == 5


def test_ranks_inside_a_subgroup(pool):
    pool.run(check_ranks_of_subgroup)


def check_local_synchronization() -> None:
    rank = dist.get_rank()
    for _ in range(2):
        if rank in (0, 2):
            group = dist.new_group([0, 2], use_local_synchronization=True)
            assert total(group) == 2
            dist.destroy_process_group(group)


def test_new_group_of_its_members_alone_again_and_again(pool):
    pool.run(check_local_synchronization)


def check_split() -> None:
    rank = dist.get_rank()
    world = dist.group.WORLD
    for _ in range(3):
        half = world.split_group([0, 1] if rank < 2 else [2, 3], timeout=TIMEOUT)
        assert half.size() == 2
        assert half.rank() == rank % 2
        tensor = torch.tensor([float(rank)])
        half.allreduce([tensor]).wait()
        assert tensor.item() == (1 if rank < 2 else 5)
        del half
    few = world.split_group([1, 3], timeout=TIMEOUT)
    assert (few is None) == (rank in (0, 2))
    if few is not None:
        one = few.split_group([0], timeout=TIMEOUT)
        assert (one is None) == (rank == 3)
        tensor = torch.tensor([float(rank)])
        few.allreduce([tensor]).wait()
        assert tensor.item() == 4
    assert total() == 6


def test_split_group(pool):
    pool.run(check_split)


def check_options() -> None:
    backend = dist.group.WORLD._get_backend(CPU)
    assert backend.supports_splitting
    assert backend.supports_coalescing
    assert backend.name() == "mccl"
    options = backend.options
    assert options.backend == "mccl"
    assert options.global_ranks_in_group == [0, 1, 2, 3]
    assert type(copy.deepcopy(options)) is type(options)
    assert copy.deepcopy(options)._timeout == TIMEOUT
    backend.perform_nocolor_split(torch.device("cpu"))
    assert backend.get_error().name == "SUCCESS"


def test_options_and_flags(pool):
    pool.run(check_options)


def check_again_on_one_store(rank: int, size: int, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, size, is_master=rank == 0, timeout=TIMEOUT)
    for round_ in range(3):
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        assert total() == sum(range(size))
        group = dist.new_group([0, 1])
        if rank < 2:
            assert total(group) == 1
        tensor = torch.full((100000,), float(round_))
        dist.broadcast(tensor, 0)
        assert tensor.eq(round_).all()
        dist.destroy_process_group()
    # The master's store must live until the other ranks have made their last request.
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < size:
        pass


def test_destroy_and_start_again_on_one_store(pool):
    port = free_port()
    pool.run_each(check_again_on_one_store, [(r, pool.size, port) for r in range(pool.size)])


EXTRA_START = """
import sys
import torch.distributed as dist
import mccl

rank, size, port = map(int, sys.argv[1:])
store = dist.TCPStore("127.0.0.1", port, size, is_master=False)
mccl.init(connect_timeout=0.1)
try:
    dist.init_process_group("mccl", store=store, rank=rank, world_size=size)
except RuntimeError as error:
    sys.exit(0 if "rank 0 to start" in str(error) else str(error))
sys.exit("it met somebody")
"""


def check_extra_start(rank: int, size: int, port: int) -> None:
    """One rank starts an extra process that no other rank meets.

    Afterwards all ranks start again.
    """
    store = dist.TCPStore("127.0.0.1", port, size, is_master=rank == 0, timeout=TIMEOUT)
    for round_ in range(2):
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        assert total() == sum(range(size))
        dist.destroy_process_group()
        # No rank starts again before the extra process has ended.
        if rank == 1 and round_ == 0:
            command = [sys.executable, "-c", EXTRA_START, str(rank), str(size), str(port)]
            subprocess.run(command, check=True, timeout=60)
        store.add(f"ready {round_}", 1)
        while store.add(f"ready {round_}", 0) < size:
            pass
    # The master's store must live until the other ranks have made their last request.
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < size:
        pass


@pytest.mark.long
def test_an_extra_start_of_one_rank_leaves_the_store_usable(pool):
    port = free_port()
    pool.run_each(check_extra_start, [(r, pool.size, port) for r in range(pool.size)])


def check_beside_gloo(path: str, rank: int, size: int, backend: str) -> None:
    store = dist.FileStore(path, size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        assert total() == sum(range(size))
        groups = [dist.new_group(m, backend="mccl") for m in ([0, 1], [2, 3], [1, 2])]
        for group, members in zip(groups, ([0, 1], [2, 3], [1, 2]), strict=True):
            if rank in members:
                assert dist.get_backend(group) == "mccl"
                assert total(group) == sum(members)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def test_beside_another_backend(pool):
    for backend in ("gloo", "cpu:mccl", "cpu:mccl,mps:gloo"):
        path = pool.store_path()
        arguments = [(path, r, pool.size, backend) for r in range(pool.size)]
        pool.run_each(check_beside_gloo, arguments)


def check_no_store_calls() -> None:
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    before = store.num_keys()
    for _ in range(20):
        dist.all_reduce(torch.ones(4))
        dist.barrier()
    assert store.num_keys() == before


def test_fault_26_collectives_leave_the_store_alone(pool):
    pool.run(check_no_store_calls)


class Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        return index * index


def check_data_loader() -> None:
    assert total() == 6
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork"
    )
    for _ in range(2):
        found = []
        for batch in loader:
            dist.all_reduce(batch)
            found += batch.tolist()
        assert found == [4 * i * i for i in range(16)]


def test_data_loader_workers_by_fork(pool):
    pool.run(check_data_loader)


def check_use_after_fork() -> None:
    assert total() == 6
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = "nothing was raised"
        try:
            dist.all_reduce(torch.ones(1))
        except Exception as error:
            text = str(error)
        try:
            # The child's teardown must not make the parent leave the job.
            dist.destroy_process_group()
            os.write(writer, text.encode())
        finally:
            os._exit(0)  # bypasses the pool's code; the child's text is in the pipe
    os.close(writer)
    os.waitpid(child, 0)
    assert "forked" in os.read(reader, 4096).decode()
    os.close(reader)
    assert total() == 6


def test_a_forked_child_gets_an_error_and_does_no_harm(pool):
    pool.run(check_use_after_fork)


def check_reset_settings(path: str, rank: int, size: int) -> None:
    import mccl

    before = dict(os.environ)
    mccl.init(chunk_bytes=65536, port_base=0)
    assert dict(os.environ) == before
    store = dist.FileStore(path, size)
    dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        assert total() == sum(range(size))
        assert mccl.get_config().chunk_bytes == 65536
    finally:
        dist.destroy_process_group()
        mccl.init()


def test_fault_32_init_leaves_the_environment_alone(pool):
    path = pool.store_path()
    pool.run_each(check_reset_settings, [(path, r, pool.size) for r in range(pool.size)])


def check_settings_disagree(path: str, rank: int, size: int) -> str:
    import mccl

    mccl.init(chunk_bytes=65536 if rank == 0 else 131072, port_base=0, connect_timeout=5)
    store = dist.FileStore(path, size)
    try:
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        return str(error)
    else:
        dist.destroy_process_group()
        return ""
    finally:
        mccl.init()


def test_ranks_that_must_agree_and_do_not_refuse_each_other():
    pool = RankPool(2)
    try:
        path = pool.store_path()
        texts = pool.run_each(check_settings_disagree, [(path, r, 2) for r in range(2)])
        assert all("chunk_bytes" in text for text in texts), texts
    finally:
        pool.close()


def check_listening_at(path: str, rank: int, size: int, address: str) -> None:
    import mccl

    mccl.init(listen_addr=address, port_base=0, job_key="a key of the job")
    store = dist.FileStore(path, size)
    try:
        dist.init_process_group("mccl", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        assert total() == sum(range(size))
        tensor = torch.full((300000,), float(rank))
        dist.broadcast(tensor, 1)
        assert tensor.eq(1).all()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        mccl.init()


@pytest.mark.parametrize("address", ["localhost", "::1"])
def test_fault_24_host_names_and_ipv6_carry_cpu_tensors(pool, address):
    if address == "::1":
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind((address, 0))
        except OSError:
            pytest.skip("no IPv6 here")
    path = pool.store_path()
    pool.run_each(check_listening_at, [(path, r, pool.size, address) for r in range(pool.size)])


LEAVE = """
import os, sys
import torch, torch.distributed as dist
import mccl
rank, path = int(sys.argv[1]), sys.argv[2]
os.environ["MCCL_PORT_BASE"] = "0"
dist.init_process_group("mccl", store=dist.FileStore(path, 2), rank=rank, world_size=2)
tensor = torch.ones(10)
dist.all_reduce(tensor)
assert tensor[0] == 2
print("done")
"""


@pytest.mark.long
def test_fault_31_leaving_without_destroy_ends_the_process(tmp_path: Path):
    commands = [[sys.executable, "-c", LEAVE, str(r), str(tmp_path / "store")] for r in range(2)]
    ranks = [
        subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for c in commands
    ]
    for process in ranks:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out == "done\n"
