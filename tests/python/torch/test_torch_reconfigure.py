"""Default groups whose members are replaced by enable_reconfigure, from torch 2.14 on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not hasattr(torch.distributed.distributed_c10d, "ReconfigureOptions"),
    reason="torch has enable_reconfigure from 2.14 on",
)

START = """
import os, signal, sys
from datetime import timedelta
import torch, torch.distributed as dist

rank, folder = int(sys.argv[1]), sys.argv[2]
store = dist.FileStore(folder + "/store", -1)

def init():
    dist.init_process_group("mccl", store=store, rank=rank, world_size=3, enable_reconfigure=True)
    assert dist._supports_reconfigure()

def handles(name, ranks=(0, 1, 2)):
    store.set(f"{name} {rank}", dist._get_reconfigure_handle())
    return [store.get(f"{name} {each}").decode() for each in ranks]

def reconfigure(uuid, handles):
    dist._reconfigure(uuid, handles, timeout=timedelta(seconds=60)).wait()

def total():
    tensor = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(tensor)
    return tensor.item()

def wait_for_all(name):
    "Waits without a collective, which the abort of a faster rank could end."
    store.set(f"{name} {rank}", "")
    store.wait([f"{name} {each}" for each in range(3)])

def refused(call, *words):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"not refused: {words}")
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START + textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], status: int = 0) -> None:
    out = process.communicate(timeout=120)[0]
    assert process.returncode == status, out


def test_a_group_gets_fewer_more_and_the_same_members(tmp_path: Path):
    code = """
        init()
        refused(total, "has no members; call reconfigure first")
        alone = dist._get_reconfigure_handle()
        reconfigure(rank, [alone])
        assert (dist.get_world_size(), dist.get_rank(), total()) == (1, 0, 1)
        refused(lambda: reconfigure(rank, [alone]), f"uuid {rank} was already used")
        refused(lambda: reconfigure(10, ["mccl:9:0"]), "lack this process's own")
        refused(lambda: reconfigure(11, [alone, alone]), "occurs twice")
        everyone = handles("all")
        reconfigure(12, everyone)
        assert (dist.get_world_size(), dist.get_rank(), total()) == (3, rank, 6)
        reconfigure(13, everyone[::-1])
        assert (dist.get_rank(), total()) == (2 - rank, 6)
        reconfigure(14, set(everyone))
        assert total() == 6
        pair = dist.new_group([0, 2])
        if dist.get_rank() != 1:
            tensor = torch.ones(5)
            dist.all_reduce(tensor, group=pair)
            assert tensor.tolist() == [2.0] * 5
        wait_for_all("summed")
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).abort()
        refused(total, "has no members; call reconfigure first")
        if rank != 1:
            reconfigure(15, [everyone[0], everyone[2]])
            assert (dist.get_world_size(), dist.get_rank(), total()) == (2, rank // 2, 3)
        wait_for_all("done")
        dist.destroy_process_group()
    """
    for process in [start(code, rank, tmp_path) for rank in range(3)]:
        finish(process)


def test_a_killed_rank_is_replaced(tmp_path: Path):
    survive = """
        init()
        reconfigure(1, handles("first"))
        assert total() == 6
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        refused(total, "rank 0 is gone")
        reconfigure(2, handles("second"))
        assert (dist.get_world_size(), dist.get_rank(), total()) == (3, rank, 6)
        dist.destroy_process_group()
    """
    replace = """
        init()
        reconfigure(2, handles("second"))
        assert (dist.get_rank(), total()) == (0, 6)
        dist.destroy_process_group()
    """
    ranks = [start(survive, rank, tmp_path) for rank in range(3)]
    finish(ranks[0], -9)
    ranks[0] = start(replace, 0, tmp_path)
    for process in ranks:
        finish(process)


def test_members_that_do_not_come_are_an_error(tmp_path: Path):
    code = """
        init()
        here = dist._get_reconfigure_handle()
        limit = timedelta(seconds=1)
        refused(lambda: dist._reconfigure(1, [here, "mccl:1:0"], timeout=limit).wait(), "rank 1")
        reconfigure(2, [here])
        assert total() == 1
        dist.destroy_process_group()
    """
    finish(start(code, 0, tmp_path))
