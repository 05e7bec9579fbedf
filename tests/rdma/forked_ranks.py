"""Runs a program as the ranks of several jobs, one job after another, on the hosts of hosts.sh.

An emulated core needs a minute or two to import torch, and all ranks would do so at once. Therefore
one process imports the program and all that it needs. Each rank is a fork of that process, which
then moves to its host.

    forked_ranks.py WORK PROGRAM SECONDS JOB...    JOB is SERVICE:SHAPE:SIZE, such as rc:ring:4

WORK holds the device tables, SHAPE-SIZE.json. A rank runs the program's `main`. The program's
`VARIABLES` selects the environment variables that describe the job, mccl or jaccl. Each job prints
one line and is limited to SECONDS.
"""

import ctypes
import importlib.util
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

CLONE_NEWNET = 0x40000000
FIRST_PORT = 33000
PORTS_OF_A_JOB = 16


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def move_to_host(rank: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/host{rank}") as space:
        if libc.setns(space.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to host{rank}")


def variables_of(kind: str, rank: int, job: str, table: Path, port: int) -> dict[str, str]:
    service, shape, size = job.split(":")
    common = {"MCCL_RDMA_SERVICE": service, "MCCL_PORT_BASE": "0"}
    if kind == "jaccl":
        ring = {"MLX_JACCL_RING": "1"} if shape == "ring" else {}
        return (
            common
            | ring
            | {
                "MLX_RANK": str(rank),
                "MLX_IBV_DEVICES": str(table),
                "MLX_JACCL_COORDINATOR": f"10.8.0.1:{port}",
            }
        )
    return common | {
        "MCCL_RANK": str(rank),
        "MCCL_WORLD_SIZE": size,
        "MCCL_ROOT": f"10.8.0.1:{port}",
        "MCCL_RDMA_DEVICE": str(table),
        "MCCL_TRANSPORT": "rdma" if shape == "mesh" else "auto",
    }


def be_a_rank(program: ModuleType, rank: int, variables: dict[str, str], log: Path) -> None:
    """Runs the program as one rank in a child process, and never returns."""
    status = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        move_to_host(rank)
        os.environ.update(variables)
        program.main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait_for(ranks: list[int], seconds: int) -> list[int]:
    """Returns the exit status of each rank. Ranks that still run after `seconds` are killed."""

    def kill_the_rest(*_: object) -> None:
        for process in ranks[len(statuses) :]:
            os.kill(process, signal.SIGKILL)

    statuses: list[int] = []
    signal.signal(signal.SIGALRM, kill_the_rest)
    signal.alarm(seconds)
    for process in ranks:
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    signal.alarm(0)
    return statuses


def run(program: ModuleType, job: str, work: Path, seconds: int, port: int) -> bool:
    shape, size = job.split(":")[1:]
    table = work / f"{shape}-{size}.json"
    kind = getattr(program, "VARIABLES", "mccl")
    begun = time.monotonic()
    ranks = []
    for rank in range(int(size)):
        process = os.fork()
        if process == 0:
            variables = variables_of(kind, rank, job, table, port)
            be_a_rank(program, rank, variables, work / f"forked{rank}")
        ranks.append(process)
    statuses = wait_for(ranks, seconds)
    good = not any(statuses)
    name = f"{program.__doc__.splitlines()[0]} {job}"
    print(f"{'ok     ' if good else 'FAILED '} {name} ({time.monotonic() - begun:.0f} s)")
    for rank, status in enumerate(statuses):
        said = (work / f"forked{rank}").read_text(errors="replace").splitlines()
        if status:
            said = [f"rank {rank} ended with {status}", *said[-20:]]
        elif rank == 0:
            said = said[-1:]
        else:
            continue
        print("\n".join(f"        {line[:400]}" for line in said), flush=True)
    return good


def main() -> None:
    work, path, seconds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    begun = time.monotonic()
    program = load(path)
    print(f"        {path.stem} was imported in {time.monotonic() - begun:.0f} s", flush=True)
    good = True
    for number, job in enumerate(sys.argv[4:]):
        port = FIRST_PORT + PORTS_OF_A_JOB * number
        good = run(program, job, work, seconds, port) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
