"""Failures of jobs on the mpi backend: the engine names the rank and the calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mpi_jobs import MPICH_IS_LONG, each_mpi, mpirun, python  # noqa: F401

LEAVES = """
import numpy as np
import mccl.distributed as dist
world = dist.init(backend="mpi")
world.barrier()
if world.rank == 1:
    raise SystemExit(3)
try:
    world.all_reduce(np.ones({count}))
except dist.PeerError as error:
    print("told:", error, flush=True)
"""


@pytest.mark.parametrize("count", [4, 3_000_000])
@MPICH_IS_LONG
def test_a_rank_that_leaves_is_an_error_that_names_it(mpi: str, count: int):
    code = LEAVES.replace("{count}", str(count))
    done = mpirun(mpi, 2, sys.executable, "-c", code)
    assert done.returncode != 0
    assert "rank 1 is gone: it has left the job" in done.stdout, done.stdout


DIFFERS = """
import numpy as np
import mccl.distributed as dist
world = dist.init(backend="mpi")
world.all_reduce(np.ones(4))
one = np.ones(4, np.float32)
try:
    while True:
        {rank_1} if world.rank == 1 else {others}
except dist.MismatchError as error:
    print(f"told: {{error}}\\n", end="", flush=True)
"""
#: With small calls, MPI hangs in the first case and may report the second. It carries out the
#: third, which is found only by a comparison of the calls. With large calls, Open MPI would write
#: past the end of the ranks' memory.
UNLIKE = {
    "another call": ("world.barrier()", "world.all_reduce(one)"),
    "another count": ("world.all_reduce(np.ones(5, np.float32))", "world.all_reduce(one)"),
    "another operation": ("world.all_reduce(one, op='max')", "world.all_reduce(one)"),
    "a larger type": ("world.all_reduce(np.ones(9_000))", "world.all_reduce(np.ones(9_000, 'u1'))"),
    "a much larger count": ("world.all_reduce(np.ones(999_999))", "world.all_reduce(one)"),
    # Negative numbers are large fingerprints, so the ranks must not reduce both together.
    "a small negative call": ("world.all_reduce(-one)", "world.all_reduce(np.ones(999_999))"),
    "another large operation": (
        "world.all_reduce(np.ones(999_999), op='max')",
        "world.all_reduce(np.ones(999_999))",
    ),
}


@pytest.mark.parametrize("unlike", UNLIKE)
@MPICH_IS_LONG
def test_calls_that_differ_are_an_error_on_every_rank(mpi: str, unlike: str):
    rank_1, others = UNLIKE[unlike]
    said = python(mpi, 3, DIFFERS.format(rank_1=rank_1, others=others))
    told = [line for line in said.splitlines() if line.startswith("told:")]
    assert len(told) == 3, said
    assert all("must make the same calls" in line for line in told), said


LONGER = """
import numpy as np
import mccl.distributed as dist
world = dist.init(backend="mpi")
mine = np.ones({sent}, np.uint8)
memory = np.zeros(1 << 20, np.uint8)
try:
    if {by_message}:
        world.send(mine, 1) if world.rank == 0 else world.recv(memory[: {expected}], 0)
    elif world.rank == 0:
        world.all_to_all(mine, in_counts=[0, {sent}], out_counts=[0, 0])
    else:
        world.all_to_all(mine[:0], in_counts=[0, 0], out_counts=[{expected}, 0],
                         out=memory[: {expected}])
except dist.MismatchError as error:
    print(f"told: {error}; beyond: {memory[{expected} :].any()}\\n", end="", flush=True)
"""


@pytest.mark.parametrize("sent", [20, 5_000, 900_000])
@pytest.mark.parametrize("expected", [10, 4_500])
@pytest.mark.parametrize("by_message", [True, False])
@MPICH_IS_LONG
def test_a_message_of_another_length_is_an_error_and_spares_the_memory(
    mpi: str, sent: int, expected: int, by_message: bool
):
    code = LONGER.replace("{by_message}", str(by_message))
    code = code.replace("{sent}", str(sent)).replace("{expected}", str(expected))
    said = python(mpi, 2, code)
    assert f"rank 0 sent {sent} bytes, but this rank expected {expected} u8" in said
    assert "same order; beyond: False" in said, said


SPARES_OTHERS = """
import numpy as np
import mccl.distributed as dist
world = dist.init(backend="mpi")
mine = np.full(4_096, world.rank + 5, np.uint8)
receive = np.zeros(4_096, np.uint8)
to = [[0, 2_000, 0], [0, 0, 4_096], [0, 0, 0]][world.rank]
out = [[0, 0, 0], [10, 0, 0], [0, 4_096, 0]][world.rank]
pair = world.split(min(world.rank, 1))
if world.rank == 2:
    pair.barrier()
try:
    work = world.all_to_all(mine[: sum(to)], in_counts=to, out_counts=out,
                            out=receive[: sum(out)], wait=False)
    if world.rank == 1:
        pair.barrier()
    work.wait()
    print(f"got: {np.unique(receive)}\\n", end="", flush=True)
except dist.Error as error:
    print(f"told: {type(error).__name__}\\n", end="", flush=True)
"""


@MPICH_IS_LONG
def test_a_message_that_is_too_long_does_not_change_what_its_receiver_sends(mpi: str):
    said = python(mpi, 3, SPARES_OTHERS)
    assert "told: MismatchError" in said
    # Rank 2 gets the data of rank 1 (6) or an error, but not those of rank 0 (5).
    assert "got: [5" not in said, said


KILLED = """
import os
import signal
import sys
import time
import numpy as np
import mccl.distributed as dist
world = dist.init(backend="mpi")
world.barrier()
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
began = time.monotonic()
try:
    world.all_reduce(np.ones(4))
except dist.PeerError as error:
    with open(f"{sys.argv[1]}/{world.rank}", "w") as told:
        told.write(f"{time.monotonic() - began:.1f} {error}\\n")
os._exit(0)
"""
#: Without these options, the launchers end a job when one of its ranks dies. MPICH's launcher still
#: does so at times if the rank is its own child, and signals the other ranks.
LET_LIVE = {"openmpi": ("--enable-recovery",), "mpich": ("-disable-auto-cleanup",)}
LIVES_ON = ("sh", "-c", 'trap "" USR1; "$@"; :', "sh")


def test_a_rank_that_is_killed_is_named_by_the_others(mpi: str, tmp_path: Path):
    words = (*LET_LIVE[mpi], *LIVES_ON, sys.executable, "-c", KILLED, tmp_path)
    done = mpirun(mpi, 3, *words)
    told = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert sorted(told) == ["0", "2"], done.stdout
    for text in told.values():
        seconds, error = text.split(maxsplit=1)
        assert float(seconds) <= 1, text
        assert "rank 1 is gone" in error


#: Kills a rank in the middle of MPI's creation of a communicator, once the others are in it. The
#: environment says which files a rank makes, and for which files it waits.
SHIM = """
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int PMPI_Comm_create_group(void* all, void* group, int tag, void* made);
int MPI_Comm_create_group(void* all, void* group, int tag, void* made) {
  const char *own = getenv("OWN_FILE"), *first = getenv("FIRST_FILE");
  const char* other = getenv("OTHER_FILE");
  if (own) close(open(own, O_CREAT | O_WRONLY, 0600));
  if (first) {
    while (access(first, F_OK) || access(other, F_OK)) usleep(1000);
    kill(getpid(), SIGKILL);
  }
  return PMPI_Comm_create_group(all, group, tag, made);
}
"""
LIBRARY_FILE = {"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}
DIES_MEANWHILE = """
import os
import sys
import time
import mccl.distributed as dist
world = dist.init(backend="mpi")
world.barrier()
if world.rank == 1:
    os.environ |= {"FIRST_FILE": sys.argv[1] + "-0", "OTHER_FILE": sys.argv[1] + "-2"}
else:
    os.environ["OWN_FILE"] = f"{sys.argv[1]}-{world.rank}"
began = time.monotonic()
try:
    world.split(0)
except dist.PeerError as error:
    told = f"{time.monotonic() - began:.1f} {error}"
try:
    world.barrier()
except dist.Error as error:
    told += f" | later: {error}"
with open(f"{sys.argv[1]}/{world.rank}", "w") as file:
    file.write(told)
os._exit(0)
"""


@MPICH_IS_LONG
def test_a_death_while_a_group_is_made_ends_the_wait(mpi: str, tmp_path: Path):
    source, shim, told = tmp_path / "shim.c", tmp_path / "libshim.so", tmp_path / "told"
    source.write_text(SHIM)
    told.mkdir()
    flags = ("-shared", "-fPIC", "-Wl,--no-as-needed", f"-l:{LIBRARY_FILE[mpi]}")
    subprocess.run(["cc", source, "-o", shim, *flags], check=True)
    words = (*LET_LIVE[mpi], *LIVES_ON, sys.executable, "-c", DIES_MEANWHILE, told)
    done = mpirun(mpi, 3, *words, MPI_LIBNAME=str(shim))
    texts = {file.name: file.read_text() for file in told.iterdir()}
    assert sorted(texts) == ["0", "2"], done.stdout
    for text in texts.values():
        seconds, error = text.split(maxsplit=1)
        assert float(seconds) <= 1, text
        assert "cannot create group" in error and "rank 1 is gone" in error
        assert "later: barrier" in error


LATE = """
import os
import sys
import numpy as np
import mccl.distributed as dist
world = dist.init(backend="mpi")
world.barrier()
if world.rank == 1:
    open(sys.argv[1]).read()  # until rank 0 has given up
try:
    world.all_reduce(np.ones(4), timeout=1)
except dist.TimeoutError as error:
    print(f"rank {world.rank} is told: {error}\\n", end="", flush=True)
if world.rank == 0:
    open(sys.argv[1], "w").close()
"""


@MPICH_IS_LONG
def test_a_rank_that_is_late_is_named(mpi: str, tmp_path: Path):
    os.mkfifo(tmp_path / "late")
    said = python(mpi, 2, LATE, tmp_path / "late")
    assert "rank 0 is told: all_reduce" in said
    assert "waiting for rank 1 (which has called no collective of this group since barrier" in said
