"""Large messages between ranks of one host, which the receiver copies from the sender's memory."""

import sys
from pathlib import Path

import pytest
from launching import environment, run

MESSAGES = """
import os

if {setup}:
    import ctypes

    os.setgid(65534)
    os.setuid(65534)
    assert ctypes.CDLL(None).prctl(4, 0) == 0  # PR_SET_DUMPABLE

import numpy as np

import mccl.distributed as dist

world = dist.init()
rank, size = world.rank, world.size
after, before = (rank + 1) % size, (rank - 1) % size
for length in (0, 1, 32 << 10, (32 << 10) + 1, 100_000, 5 * (1 << 20) + 3):
    data = np.random.default_rng(rank).integers(0, 256, length, np.uint8)
    expected = np.random.default_rng(before).integers(0, 256, length, np.uint8)
    for _ in range(3):
        received = np.zeros(length, np.uint8)
        works = [
            world.recv(received, before, tag=length, wait=False),
            world.send(data, after, tag=length, wait=False),
        ]
        for work in works:
            work.wait()
        assert (received == expected).all(), length
# A message for which the receiver waits only later, and one from any rank.
if rank == 0:
    world.send(np.full(1 << 20, 7, np.uint8), 1)
elif rank == 1:
    late = np.zeros(1 << 20, np.uint8)
    world.recv(late, None)
    assert (late == 7).all()
world.barrier()
print("rank", rank, "is done")
"""
ABOUT = "messages of more than 32 KiB between the ranks of this host are copied"

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs process_vm_readv")


def exchange(folder: Path, *, setup: bool = False, ranks: int = 4, **settings: str):
    script = folder / "messages.py"
    script.write_text(MESSAGES.replace("{setup}", str(setup)))
    folder.chmod(0o755)
    settings = {"MCCL_LOG_LEVEL": "INFO"} | settings
    done = run("-n", ranks, "--", sys.executable, script, env=environment(**settings))
    assert done.stdout.count("is done") == ranks, (done.stdout, done.stderr)
    return done


@LINUX
@pytest.mark.parametrize("setting", ["auto", "on", "off"])
@pytest.mark.parametrize("crc", ["0", "1"])
def test_messages_of_all_sizes_arrive(tmp_path, setting, crc):
    done = exchange(tmp_path, MCCL_CROSS_MEMORY=setting, MCCL_TRANSPORT_CRC=crc)
    chooses = setting == "auto" and crc == "0"
    assert done.stderr.count(ABOUT) == (1 if chooses else 0), done.stderr
    why = "copied twice, through shared memory: they have checksums (MCCL_TRANSPORT_CRC)"
    warns = setting == "on" and crc == "1"
    assert (why in done.stderr) == warns, done.stderr
    assert ("MCCL_CROSS_MEMORY is on, but" in done.stderr) == warns, done.stderr


@LINUX
@pytest.mark.parametrize("setting", ["auto", "on"])
def test_a_system_that_forbids_it_is_named(tmp_path_factory, setting):
    """The ranks run as another user and cannot be debugged, as under Yama's ptrace_scope."""
    folder = tmp_path_factory.getbasetemp().parent / f"forbidden-{setting}"
    folder.mkdir(exist_ok=True)
    done = exchange(folder, setup=True, ranks=2, MCCL_CROSS_MEMORY=setting)
    why = "shared memory: the system forbids it (see kernel.yama.ptrace_scope"
    assert why in done.stderr, done.stderr
    warns = "MCCL_CROSS_MEMORY is on, but large messages" in done.stderr
    assert warns == (setting == "on"), done.stderr


@LINUX
def test_without_a_measurement_messages_need_two_copies(tmp_path):
    done = exchange(tmp_path, MCCL_CALIBRATE="0", ranks=2)
    assert ABOUT not in done.stderr


@LINUX
def test_ranks_must_agree(tmp_path):
    script = tmp_path / "differ.py"
    script.write_text(
        "import os\n"
        "os.environ['MCCL_CROSS_MEMORY'] = 'on' if os.environ['MCCL_RANK'] == '0' else 'off'\n"
        "import mccl.distributed as dist\n"
        "dist.init()\n"
    )
    done = run("-n", 2, "--", sys.executable, script, env=environment(), status=1)
    assert "differ in cross_memory" in done.stderr
