"""Which job a process belongs to, by the environment: decisions, without doing anything.

A backend is a name that MLX's users know. Each has one function here, from the environment to the
settings that the job is joined with; it raises Refusal with a sentence when that cannot be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mccl import _core

Environment = Mapping[str, str]


class Refusal(Exception):  # noqa: N818  (it is an answer; whether it is an error depends on strict)
    """Why a backend cannot be used.

    Attributes:
        absent: Nothing in the environment asks for this backend, so that passing over it is right.
    """

    def __init__(self, sentence: str, *, absent: bool = False) -> None:
        super().__init__(sentence)
        self.absent = absent


@dataclass(frozen=True)
class Job:
    """How to join: a backend's name, and the settings that its environment stands for."""

    backend: str
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def ring(environment: Environment, settings: Mapping[str, str]) -> Job:
    """From MLX_RANK and MLX_HOSTFILE, as `mlx.launch` sets them.

    The ranks meet at rank 0's first address. Each rank listens at its own addresses, several of
    which make several links per pair, at the port of the first; rank 0, whose first port is where
    the ranks meet, at the port of a later one or else at any free port.
    """
    rank_text, path = environment.get("MLX_RANK"), environment.get("MLX_HOSTFILE")
    if not rank_text and not path:
        raise Refusal("ring: neither MLX_RANK nor MLX_HOSTFILE is set", absent=True)
    if not rank_text or not path:
        missing, other = ("MLX_HOSTFILE", "MLX_RANK") if rank_text else ("MLX_RANK", "MLX_HOSTFILE")
        # MLX's other backends use MLX_RANK too.
        elsewhere = bool(rank_text) and bool(_asks_for_others(environment))
        raise Refusal(f"ring: {other} is set, but {missing} is not", absent=elsewhere)
    ranks = _read_hostfile(path)
    rank = _rank_of(rank_text, len(ranks), path)
    own = ranks[rank]
    port = own[0].port if rank != 0 else next((a.port for a in own if a.port != own[0].port), 0)
    return Job(
        "ring",
        {
            "rank": str(rank),
            "world_size": str(len(ranks)),
            "root": str(ranks[0][0]),
            "listen_addr": ",".join(dict.fromkeys(address.host for address in own)),
            # Rank r listens on port_base + r.
            "port_base": str(port - rank if port > rank else 0),
            **({"log_level": "INFO"} if _is_on(environment, "MLX_RING_VERBOSE") else {}),
        },
    )


def _is_on(environment: Environment, variable: str) -> bool:
    return environment.get(variable, "") not in ("", "0")


def _rank_of(text: str, size: int, path: str) -> int:
    if not text.strip().isdecimal():
        raise Refusal(f"ring: MLX_RANK is '{text}'; a rank is an integer from 0")
    rank = int(text)
    if rank >= size:
        raise Refusal(
            f"ring: MLX_RANK is {rank}, but {path} has {size} ranks, 0 to {size - 1}; give every "
            "rank an entry in the hostfile"
        )
    return rank


def _read_hostfile(path: str) -> list[list[_Address]]:
    try:
        document = json.loads(Path(path).read_text())
    except OSError as error:
        raise Refusal(f"ring: MLX_HOSTFILE {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Refusal(f"ring: MLX_HOSTFILE {path} is not JSON: {error}") from None
    if not isinstance(document, list) or not document:
        raise Refusal(
            f'ring: MLX_HOSTFILE {path}: expected [["host:port", …], …], a list of addresses for '
            f"each rank; found {_shape_of(document)}"
        )
    return [_addresses_of(entry, rank, path) for rank, entry in enumerate(document)]


def _addresses_of(entry: object, rank: int, path: str) -> list[_Address]:
    if not isinstance(entry, list) or not entry:
        hint = ""
        if isinstance(entry, dict):
            hint = '; a hostfile with "ssh" and "ips" is one for mlx.launch, which makes the other'
        raise Refusal(
            f'ring: MLX_HOSTFILE {path}: rank {rank}: expected a list of one or more "host:port"; '
            f"found {_shape_of(entry)}{hint}"
        )
    return [_address_of(item, rank, path) for item in entry]


def _address_of(item: object, rank: int, path: str) -> _Address:
    host, _, port = item.rpartition(":") if isinstance(item, str) else ("", "", "")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise Refusal(
            f'ring: MLX_HOSTFILE {path}: rank {rank}: expected "host:port" with a port from 1 to '
            f"65535; found {json.dumps(item)}"
        )
    return _Address(host, int(port))


def _shape_of(value: object) -> str:
    if isinstance(value, (list, dict)) and not value:
        return "an empty list" if isinstance(value, list) else "an empty object"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def mccl(environment: Environment, settings: Mapping[str, str]) -> Job:
    """From MCCL's own settings, or a launcher.

    The settings are MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT, in the environment or given to
    mccl.init(); the launchers torchrun, Open MPI's and MPICH's mpirun, and srun.
    """
    try:
        place = _core.placement(dict(settings), _readable(environment))
    except ValueError as error:
        raise Refusal(f"mccl: {error}") from None
    if place is None:
        raise Refusal(
            "mccl: neither MCCL_RANK nor MCCL_WORLD_SIZE is set, and no launcher tells them "
            "(mccl launch, torchrun, mpirun or srun)",
            absent=True,
        )
    return Job("mccl")


def _readable(environment: Environment) -> dict[str, str]:
    """The variables whose values are text; no launcher sets others."""
    return {name: text for name, text in environment.items() if _is_utf8(name + text)}


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


#: What the launchers of MPI set; srun does where it speaks PMI or PMIx.
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "PMIX_RANK", "PMI_RANK")


def mpi(environment: Environment, settings: Mapping[str, str]) -> Job:
    """The job that MPI's launcher has started: its ranks are MPI's, and so are the calls."""
    started = any(environment.get(variable) for variable in _MPI_VARIABLES)
    if not started and settings.get("backend") != "mpi":
        raise Refusal(
            "mpi: no launcher of MPI has started this process (mpirun, srun --mpi=pmix or "
            "mccl launch --backend mpi)",
            absent=True,
        )
    return Job("mpi", {"backend": "mpi"})


def _not_here(name: str, variables: tuple[str, ...], needs: str) -> Callable[..., Job]:
    def refuse(environment: Environment, settings: Mapping[str, str]) -> Job:
        asked = [variable for variable in variables if environment.get(variable)]
        because = f"{asked[0]} asks for it, but " if asked else ""
        raise Refusal(
            f'{name}: {because}this version of MCCL has no {needs}; backend="ring" communicates '
            "over TCP and shared memory",
            absent=not asked,
        )

    return refuse


_OTHERS = {
    "jaccl": (("MLX_JACCL_COORDINATOR", "MLX_IBV_DEVICES"), "RDMA"),
    "nccl": (("NCCL_HOST_IP",), "calls into NCCL"),
}


def _asks_for_others(environment: Environment) -> list[str]:
    asking = {name: variables for name, (variables, _) in _OTHERS.items()}
    return [
        name
        for name, variables in {**asking, "mpi": _MPI_VARIABLES}.items()
        if any(environment.get(variable) for variable in variables)
    ]


BACKENDS: dict[str, Callable[[Environment, Mapping[str, str]], Job]] = {
    "ring": ring,
    "mccl": mccl,
    **{name: _not_here(name, *about) for name, about in _OTHERS.items()},
    "mpi": mpi,
}

#: Those that can communicate in this version.
PRESENT = ("ring", "mccl", "mpi")

ANY = "any"


def order_of_any(settings: Mapping[str, str]) -> list[str]:
    """The backends in the order in which `any` tries them.

    Who sets MCCL_RANK means MCCL_RANK. Otherwise what is set for MLX goes first: a program that
    `mlx.launch` starts may find what another launcher left in the environment.
    """
    first = "mccl" if settings["rank"] != "-1" or settings["world_size"] != "-1" else "ring"
    return [first, *(name for name in BACKENDS if name != first)]


def require_known(name: object) -> str:
    """`name` where it is that of a backend, or `any`; ValueError otherwise."""
    if name == ANY or name in BACKENDS:
        return str(name)
    raise ValueError(f"backend {name!r}: expected one of {', '.join([ANY, *BACKENDS])}")
