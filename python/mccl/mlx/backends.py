"""Finds the job of a process from the environment, without side effects.

Each backend of MLX has one function here. It takes the environment and returns a Job, with the
settings for joining it. It raises Refusal with the reason if the process cannot join.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import mlx.core as mx

from mccl import _core
from mccl.config import default_text, resolved_settings
from mccl.jaccl import jaccl
from mccl.jobs import (
    Address,
    Environment,
    Job,
    Refusal,
    is_on,
    rank_of,
    require_all,
    shape_of,
    split_address,
)

from .loader import load


def ring(environment: Environment, settings: Mapping[str, str]) -> Job:
    """The job that MLX_RANK and MLX_HOSTFILE describe, which `mlx.launch` sets.

    The ranks meet at rank 0's first address and port. Each rank listens at all of its addresses, at
    the port of the first one. Each pair of ranks gets one link per address; an address that is
    listed twice gives two links. Rank 0's first port is taken by the meeting point, so rank 0
    listens at the first different port among its addresses, or at any free port if there is none.
    """
    rank_text, path = environment.get("MLX_RANK"), environment.get("MLX_HOSTFILE")
    if not rank_text and not path:
        raise Refusal("ring: neither MLX_RANK nor MLX_HOSTFILE is set", absent=True)
    if not rank_text or not path:
        missing, other = ("MLX_HOSTFILE", "MLX_RANK") if rank_text else ("MLX_RANK", "MLX_HOSTFILE")
        # Other backends of MLX also use MLX_RANK, so MLX_RANK alone does not select `ring`.
        elsewhere = bool(rank_text) and bool(_asks_for_others(environment))
        raise Refusal(f"ring: {other} is set, but {missing} is not", absent=elsewhere)
    if rank_text.strip() == "0" and _is_blank(path):
        return Job("ring", alone=True)  # `mlx.launch -n 1` gives an empty hostfile.
    ranks = _read_hostfile(path)
    rank = rank_of("ring", rank_text, len(ranks), path)
    own = ranks[rank]
    port = own[0].port if rank != 0 else next((a.port for a in own if a.port != own[0].port), 0)
    return Job(
        "ring",
        {
            "rank": str(rank),
            "world_size": str(len(ranks)),
            "root": str(ranks[0][0]),
            # If no network joins all ranks, they meet along the cables instead.
            "hostfile": path,
            "listen_addr": ",".join(address.host for address in own),
            # Rank r listens on port_base + r.
            "port_base": str(port - rank if port > rank else 0),
            **_verbosity(environment, settings),
        },
    )


def _verbosity(environment: Environment, settings: Mapping[str, str]) -> dict[str, str]:
    """Raises the log level for MLX_RING_VERBOSE, unless MCCL's own setting is set."""
    usual = default_text("log_level")
    is_given = settings.get("log_level", usual) != usual
    return {"log_level": "INFO"} if is_on(environment, "MLX_RING_VERBOSE") and not is_given else {}


def _is_blank(path: str) -> bool:
    try:
        return not Path(path).read_text().strip()
    except (OSError, ValueError):
        return False


def _read_hostfile(path: str) -> list[list[Address]]:
    try:
        document = json.loads(Path(path).read_text())
    except OSError as error:
        raise Refusal(f"ring: MLX_HOSTFILE {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Refusal(f"ring: MLX_HOSTFILE {path} is not JSON: {error}") from None
    if not isinstance(document, list) or not document:
        raise Refusal(
            f'ring: MLX_HOSTFILE {path}: expected [["host:port", …], …], a list of addresses for '
            f"each rank; found {shape_of(document)}"
        )
    return [_addresses_of(entry, rank, path) for rank, entry in enumerate(document)]


def _addresses_of(entry: object, rank: int, path: str) -> list[Address]:
    if not isinstance(entry, list) or not entry:
        hint = ""
        if isinstance(entry, dict):
            hint = '; a hostfile with "ssh" and "ips" is for mlx.launch, not for MLX_HOSTFILE'
        raise Refusal(
            f'ring: MLX_HOSTFILE {path}: rank {rank}: expected a list of one or more "host:port"; '
            f"found {shape_of(entry)}{hint}"
        )
    return [_address_of(item, rank, path) for item in entry]


def _address_of(item: object, rank: int, path: str) -> Address:
    host, port = split_address(item) if isinstance(item, str) else ("", 0)
    if not host or not port:
        raise Refusal(
            f'ring: MLX_HOSTFILE {path}: rank {rank}: expected "host:port" with a port from 1 to '
            f"65535; found {json.dumps(item)}"
        )
    return Address(host, port)


def mccl(environment: Environment, settings: Mapping[str, str]) -> Job:
    """The job that MCCL's own settings or a launcher describe.

    The settings are MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT, in the environment or given to
    mccl.init(). The launchers are torchrun, Open MPI's and MPICH's mpirun, and srun.
    """
    try:
        place = _core.placement(dict(settings), _readable(environment))
    except ValueError as error:
        raise Refusal(f"mccl: {error}") from None
    if place is None:
        raise Refusal(
            "mccl: neither MCCL_RANK nor MCCL_WORLD_SIZE is set, and no launcher (mccl launch, "
            "torchrun, mpirun or srun) provides them",
            absent=True,
        )
    return Job("mccl", _verbosity(environment, settings), on_gpu=load().has_gpu())


def _readable(environment: Environment) -> dict[str, str]:
    """Returns the variables whose values are UTF-8 text. Launchers set only such values."""
    return {name: text for name, text in environment.items() if _is_utf8(name + text)}


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_NO_GPU = (
    "nccl: arrays are sent from host memory, through shared memory and TCP: {reason}. Calls "
    "between GPUs need a GPU, MLX for CUDA (pip install mlx[cuda13]), and MCCL built for that MLX "
    "with CUDA's headers"
)


def _why_not_on_gpu() -> str:
    """The reason why MLX's arrays cannot be sent from GPU to GPU; empty if they can."""
    if load().has_gpu():
        return ""
    if not mx.cuda.is_available():
        return "MLX was built without CUDA, or finds no CUDA GPU"
    return "this MCCL was built for an MLX without CUDA, or without CUDA's headers"


def nccl(environment: Environment, settings: Mapping[str, str]) -> Job:
    """The job that MLX_RANK, MLX_WORLD_SIZE, NCCL_HOST_IP, NCCL_PORT and MLX_NCCL_TIMEOUT describe.

    GPU arrays are sent by kernels or NCCL if each rank has a GPU, else through pinned memory.
    """
    names = ("MLX_RANK", "MLX_WORLD_SIZE", "NCCL_HOST_IP", "NCCL_PORT")
    given = {name: environment.get(name) for name in names}
    if not given["NCCL_HOST_IP"] and not given["MLX_WORLD_SIZE"]:
        raise Refusal("nccl: neither NCCL_HOST_IP nor MLX_WORLD_SIZE is set", absent=True)
    require_all("nccl", given)
    size = given["MLX_WORLD_SIZE"].strip()
    if not size.isdecimal() or int(size) == 0:
        raise Refusal(f"nccl: MLX_WORLD_SIZE: expected the number of ranks; found '{size}'")
    rank = rank_of("nccl", given["MLX_RANK"], int(size), "MLX_WORLD_SIZE")
    host, port = split_address(f"{given['NCCL_HOST_IP']}:{given['NCCL_PORT'].strip()}")
    if not port:
        raise Refusal(
            f"nccl: NCCL_PORT: expected a port from 1 to 65535; found '{given['NCCL_PORT']}'"
        )
    job = {"rank": str(rank), "world_size": size, "root": str(Address(host, port))}
    if timeout := environment.get("MLX_NCCL_TIMEOUT"):
        job["connect_timeout"] = _seconds("MLX_NCCL_TIMEOUT", timeout)
    reason = _why_not_on_gpu()
    return Job(
        "nccl", job, slower=_NO_GPU.format(reason=reason) if reason else "", on_gpu=not reason
    )


def _seconds(variable: str, milliseconds: str) -> str:
    text = milliseconds.strip()
    year = 365 * 24 * 3600 * 1000
    if not text.isdecimal() or not 0 < int(text) <= year:
        raise Refusal(
            f"nccl: {variable}: expected milliseconds, from 1 to {year}; found '{milliseconds}'"
        )
    return f"{int(text) / 1000:g}"


#: Variables that MPI's launchers set; srun sets them if it uses PMI or PMIx.
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "PMIX_RANK", "PMI_RANK")
_MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def mpi(environment: Environment, settings: Mapping[str, str]) -> Job:
    """The job that MPI's launcher has started. MPI assigns its ranks and executes its calls."""
    started = any(environment.get(variable) for variable in _MPI_VARIABLES)
    sizes = [environment[name].strip() for name in _MPI_SIZES if environment.get(name)]
    if started and sizes and sizes[0] == "1":
        raise Refusal(
            "mpi: the launcher has started a single process; start several (mpirun -n 2)",
            absent=True,
        )
    if not started and settings.get("backend") != "mpi":
        raise Refusal(
            "mpi: this process was not started by mpirun or srun; start it with mpirun, "
            "srun --mpi=pmix or mccl launch --backend mpi",
            absent=True,
        )
    return Job("mpi", {"backend": "mpi"})


#: Variables that select a backend other than `ring`. MLX_RANK alone does not select one.
_ASKING = ("MLX_JACCL_COORDINATOR", "MLX_IBV_DEVICES", "NCCL_HOST_IP", "MLX_WORLD_SIZE")


def _asks_for_others(environment: Environment) -> list[str]:
    return [name for name in _ASKING if environment.get(name)]


BACKENDS: dict[str, Callable[[Environment, Mapping[str, str]], Job]] = {
    "ring": ring,
    "jaccl": jaccl,
    "nccl": nccl,
    "mccl": mccl,
    "mpi": mpi,
}

ANY = "any"

#: Functions that check whether this machine has what a backend needs, by name.
NEEDS: dict[str, Callable[[], bool]] = {
    "ring": lambda: True,
    "jaccl": lambda: _core.has_active_rdma(resolved_settings()),
    "nccl": mx.cuda.is_available,
    "mccl": lambda: True,
    "mpi": lambda: _core.has_mpi(_readable(os.environ)),
}


def order_of_any(settings: Mapping[str, str]) -> list[str]:
    """The backends in the order in which `any` tries them.

    If MCCL's rank or size is set, `mccl` is first. Otherwise MLX's backends precede it, because a
    program that `mlx.launch` starts may inherit variables of another launcher.
    """
    first = "mccl" if settings["rank"] != "-1" or settings["world_size"] != "-1" else "ring"
    return [first, *(name for name in BACKENDS if name != first)]


def require_known(name: object) -> str:
    """Returns `name` if it is a backend or `any`; raises ValueError otherwise."""
    if name == ANY or name in BACKENDS:
        return str(name)
    raise ValueError(f"backend {name!r}: expected one of {', '.join([ANY, *BACKENDS])}")
