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
    """How to join: a backend's name, and the settings that its environment stands for.

    Attributes:
        alone: It is a job of this process only.
        slower: What users should know where MLX's own backend has a faster way; or empty.
    """

    backend: str
    settings: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    slower: str = ""


@dataclass(frozen=True)
class _Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def ring(environment: Environment, settings: Mapping[str, str]) -> Job:
    """From MLX_RANK and MLX_HOSTFILE, as `mlx.launch` sets them.

    The ranks meet at rank 0's first address. Each rank listens at its own addresses, several of
    which make several links per pair (an address that stands there twice makes two), at the port of
    the first; rank 0, whose first port is where the ranks meet, at the port of a later one or else
    at any free port.
    """
    rank_text, path = environment.get("MLX_RANK"), environment.get("MLX_HOSTFILE")
    if not rank_text and not path:
        raise Refusal("ring: neither MLX_RANK nor MLX_HOSTFILE is set", absent=True)
    if not rank_text or not path:
        missing, other = ("MLX_HOSTFILE", "MLX_RANK") if rank_text else ("MLX_RANK", "MLX_HOSTFILE")
        # MLX's other backends use MLX_RANK too.
        elsewhere = bool(rank_text) and bool(_asks_for_others(environment))
        raise Refusal(f"ring: {other} is set, but {missing} is not", absent=elsewhere)
    if rank_text.strip() == "0" and _is_blank(path):
        return Job("ring", alone=True)  # as `mlx.launch -n 1` has it
    ranks = _read_hostfile(path)
    rank = _rank_of("ring", rank_text, len(ranks), path)
    own = ranks[rank]
    port = own[0].port if rank != 0 else next((a.port for a in own if a.port != own[0].port), 0)
    return Job(
        "ring",
        {
            "rank": str(rank),
            "world_size": str(len(ranks)),
            "root": str(ranks[0][0]),
            # Where no network joins all ranks, they meet along the cables instead.
            "hostfile": path,
            "listen_addr": ",".join(address.host for address in own),
            # Rank r listens on port_base + r.
            "port_base": str(port - rank if port > rank else 0),
            **({"log_level": "INFO"} if _is_on(environment, "MLX_RING_VERBOSE") else {}),
        },
    )


def _is_on(environment: Environment, variable: str) -> bool:
    return environment.get(variable, "") not in ("", "0")


def _is_blank(path: str) -> bool:
    try:
        return not Path(path).read_text().strip()
    except (OSError, ValueError):
        return False


def _rank_of(backend: str, text: str, size: int, source: str) -> int:
    if not text.strip().isdecimal():
        raise Refusal(f"{backend}: MLX_RANK is '{text}'; a rank is an integer from 0")
    rank = int(text)
    if rank >= size:
        raise Refusal(
            f"{backend}: MLX_RANK is {rank}, but {source} has {size} ranks, 0 to {size - 1}; give "
            "every rank an entry there"
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
    host, port = _split(item) if isinstance(item, str) else ("", 0)
    if not host or not port:
        raise Refusal(
            f'ring: MLX_HOSTFILE {path}: rank {rank}: expected "host:port" with a port from 1 to '
            f"65535; found {json.dumps(item)}"
        )
    return _Address(host, port)


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


_SLOWER = (
    "{backend}: this version of MCCL has no {missing}; the ranks communicate over TCP and shared "
    "memory"
)


def jaccl(environment: Environment, settings: Mapping[str, str]) -> Job:
    """From MLX_RANK, MLX_JACCL_COORDINATOR and MLX_IBV_DEVICES, or the same without MLX_.

    The ranks meet at the coordinator's address, which is rank 0's. The table of devices says by
    which each pair reaches each other; pairs without one, and ranks that cannot use theirs, take
    shared memory or TCP, as a warning says.
    """
    names = ("RANK", "JACCL_COORDINATOR", "IBV_DEVICES")
    rank_text, coordinator, path = (
        environment.get(f"JACCL_{name.removeprefix('JACCL_')}") or environment.get(f"MLX_{name}")
        for name in names
    )
    if not coordinator and not path:
        raise Refusal(
            "jaccl: neither MLX_JACCL_COORDINATOR nor MLX_IBV_DEVICES is set", absent=True
        )
    given = dict(zip(names, (rank_text, coordinator, path), strict=True))
    _require_all("jaccl", {f"MLX_{name}": text for name, text in given.items()})
    rows = _read_devices(path)
    rank = _rank_of("jaccl", rank_text, rows, f"MLX_IBV_DEVICES {path}")
    host, port = _split(coordinator)
    if not host or not port:
        raise Refusal(
            f"jaccl: MLX_JACCL_COORDINATOR: expected host:port of rank 0; found '{coordinator}'"
        )
    return Job(
        "jaccl",
        {
            "rank": str(rank),
            "world_size": str(rows),
            "root": str(_Address(host, port)),
            "rdma_device": str(Path(path).resolve()),
        },
    )


def nccl(environment: Environment, settings: Mapping[str, str]) -> Job:
    """From MLX_RANK, MLX_WORLD_SIZE, NCCL_HOST_IP and NCCL_PORT."""
    names = ("MLX_RANK", "MLX_WORLD_SIZE", "NCCL_HOST_IP", "NCCL_PORT")
    given = {name: environment.get(name) for name in names}
    if not given["NCCL_HOST_IP"] and not given["MLX_WORLD_SIZE"]:
        raise Refusal("nccl: neither NCCL_HOST_IP nor MLX_WORLD_SIZE is set", absent=True)
    _require_all("nccl", given)
    size = given["MLX_WORLD_SIZE"].strip()
    if not size.isdecimal() or int(size) == 0:
        raise Refusal(f"nccl: MLX_WORLD_SIZE: expected how many ranks there are; found '{size}'")
    rank = _rank_of("nccl", given["MLX_RANK"], int(size), "MLX_WORLD_SIZE")
    host, port = _split(f"{given['NCCL_HOST_IP']}:{given['NCCL_PORT'].strip()}")
    if not port:
        raise Refusal(
            f"nccl: NCCL_PORT: expected a port from 1 to 65535; found '{given['NCCL_PORT']}'"
        )
    return Job(
        "nccl",
        {"rank": str(rank), "world_size": size, "root": str(_Address(host, port))},
        slower=_SLOWER.format(backend="nccl", missing="calls into NCCL"),
    )


#: What the launchers of MPI set; srun does where it speaks PMI or PMIx.
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "PMIX_RANK", "PMI_RANK")


def mpi(environment: Environment, settings: Mapping[str, str]) -> Job:
    """The job that MPI's launcher has started: its ranks are MPI's, and so are the calls."""
    started = any(environment.get(variable) for variable in _MPI_VARIABLES)
    if not started and settings.get("backend") != "mpi":
        raise Refusal(
            "mpi: neither mpirun nor srun has started this process (mpirun, srun --mpi=pmix or "
            "mccl launch --backend mpi)",
            absent=True,
        )
    return Job("mpi", {"backend": "mpi"})


def _require_all(backend: str, given: Mapping[str, str | None]) -> None:
    missing = [name for name, text in given.items() if not text]
    if missing:
        found = next(name for name, text in given.items() if text)
        verb = "is" if len(missing) == 1 else "are"
        raise Refusal(f"{backend}: {found} is set, but {' and '.join(missing)} {verb} not")


def _split(text: str) -> tuple[str, int]:
    """Host and port, or 0 where there is none."""
    host, _, port = text.strip().rpartition(":")
    good = port.isdecimal() and 1 <= int(port) <= 65535
    return host.removeprefix("[").removesuffix("]"), int(port) if good else 0


def _read_devices(path: str) -> int:
    """The number of ranks in a table of devices."""
    try:
        table = json.loads(Path(path).read_text())
    except OSError as error:
        raise Refusal(f"jaccl: MLX_IBV_DEVICES {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Refusal(f"jaccl: MLX_IBV_DEVICES {path} is not JSON: {error}") from None
    rows = table if isinstance(table, list) else []
    if not rows or any(not isinstance(row, list) or len(row) != len(rows) for row in rows):
        raise Refusal(
            f"jaccl: MLX_IBV_DEVICES {path}: expected a list for each rank with a device, or null, "
            f"for each rank; found {_shape_of(table)}"
        )
    return len(rows)


#: What asks for a backend that MLX_RANK alone does not ask for.
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
