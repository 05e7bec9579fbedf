"""Rendezvous for torch: "mccl://", and "env://" under launchers that torch does not know.

torch's own handler of ``env://``, the default of ``init_process_group``, reads RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT. mpirun and srun set none of them.
"""

from __future__ import annotations

import functools
import importlib
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

if TYPE_CHECKING:
    import torch.distributed as dist

SCHEME = "mccl"

#: Key in a private store of this process, which meet() makes if the ranks do not meet through
#: torch.
_ELSEWHERE = "mccl/elsewhere"

#: Variables that torch's handler reads. The URL's query may set the variables in _IN_QUERY, under
#: the names on the right, but not those in _ADDRESS.
_IN_QUERY = {"RANK": "rank", "WORLD_SIZE": "world_size"}
_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")

#: Variables that this module has set. They do not show that a launcher started the process.
_set_here: dict[str, str] = {}

_Meeting = Iterator[tuple["dist.Store", int, int]]


def install(open_store: Callable[[dict[str, str]], dist.Store]) -> None:
    """Registers "mccl://" and takes over "env://".

    Args:
        open_store: Joins the job that the settings and the environment describe; returns its store.
    """
    # torch.distributed has a function of that name, which hides the module.
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    torchs = rendezvous._rendezvous_handlers["env"]
    meet_here = functools.partial(meet, open_store)

    @functools.wraps(torchs)
    def meet_by_environment(url: str, **options: Any) -> _Meeting:
        if _complete_environment(url):
            return meet_here(url, **options)
        return torchs(url, **options)

    rendezvous._rendezvous_handlers["env"] = meet_by_environment
    rendezvous.register_rendezvous_handler(SCHEME, meet_here)


def meet(
    open_store: Callable[[dict[str, str]], dist.Store],
    url: str,
    timeout: timedelta | None = None,
    **_: object,
) -> _Meeting:
    """Handler of ``init_process_group("mccl", init_method="mccl://")``.

    The ranks meet at the address of MCCL_ROOT or the launcher, or along the cables of
    MCCL_HOSTFILE. Ranks of MLX, NumPy and C++ meet in the same way and may belong to the same job.
    torch uses the job's own store. If some ranks of the job do not use torch, no further process
    groups can be made.

    Raises:
        ValueError: The process has no rank, or a rank or size that differs from the caller's.
    """
    from torch.distributed import HashStore

    from . import _core, config

    settings = config.resolved_settings()
    place = _core.placement(settings, dict(os.environ))
    if place is None:
        raise ValueError(
            f"{url}: the rank of this process is not set: start it with mccl launch, torchrun, "
            "mpirun or srun, or set MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT"
        )
    given = parse_qs(urlparse(url).query)
    for name, found in (("rank", place["rank"]), ("world_size", place["size"])):
        if name in given and int(given[name][0]) not in (-1, found):
            raise ValueError(
                f"{url}: {name} is {given[name][0]}, but the environment sets {found}; "
                f"leave {name} out of the call and the URL"
            )
    if place["size"] > 1 and settings.get("backend") != "mpi":
        yield open_store(settings), place["rank"], place["size"]
        return
    store = HashStore()
    store.set(_ELSEWHERE, "")
    yield store, place["rank"], place["size"]


def meets_elsewhere(store: dist.Store) -> bool:
    """True if the store of a group is the private store that meet() makes."""
    from torch.distributed import HashStore, PrefixStore

    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return isinstance(store, HashStore) and store.check([_ELSEWHERE])


def _complete_environment(url: str) -> bool:
    """Sets torch's missing variables to the values of a launcher other than torchrun.

    Changes no variable that is set. If a set variable, or a value in the URL, differs from the
    launcher's, sets nothing, and torch reports the missing variable.

    Returns:
        True if the ranks must meet through meet() instead, because rank 0 has no address that all
        of them can use.

    Raises:
        ValueError: The launcher sets only some of the values, or a setting is invalid.
    """
    told = _told(url)
    missing = [name for name in (*_IN_QUERY, *_ADDRESS) if name not in told]
    if not missing:
        return False
    from . import _core, config

    try:
        settings = config.resolved_settings()
        place = _place(settings)
        if place is None or any(
            told.get(name, found) != found
            for name, found in (("RANK", str(place["rank"])), ("WORLD_SIZE", str(place["size"])))
        ):
            return False
        elsewhere = _has_no_address(place, settings) and any(name in missing for name in _ADDRESS)
        found = {"RANK": str(place["rank"]), "WORLD_SIZE": str(place["size"])}
        if not elsewhere and any(name in missing for name in _ADDRESS):
            found |= dict(zip(_ADDRESS, _address_of_store(place, settings), strict=True))
    except ValueError as error:
        raise ValueError(f"{url}: {', '.join(missing)} not set, and {error}") from error
    wanted = {name: text for name, text in found.items() if name in missing}
    if place["local_rank"] >= 0 and not os.environ.get("LOCAL_RANK"):
        wanted["LOCAL_RANK"] = str(place["local_rank"])
    os.environ.update(wanted)
    _set_here.update(wanted)
    variables = ", ".join(f"{name}={text}" for name, text in wanted.items())
    _core.log_info(settings, place["rank"], f"torch: {variables}, from {place['found_by']}")
    return elsewhere


def _told(url: str) -> dict[str, str]:
    """Returns the values that torch's handler would use, by variable. It ignores empty values."""
    names = (*_IN_QUERY, *_ADDRESS)
    told = {name: os.environ[name] for name in names if os.environ.get(name)}
    query = parse_qs(urlparse(url).query)
    return told | {name: query[key][0] for name, key in _IN_QUERY.items() if key in query}


def _place(settings: Mapping[str, str]) -> dict[str, Any] | None:
    """Returns this process's rank and size from a launcher other than torchrun, or None."""
    from . import _core

    told = {name: text for name, text in os.environ.items() if _set_here.get(name) != text}
    place = _core.placement(settings, told)
    if place is None and "SLURM_PROCID" in os.environ and "SLURM_STEP_ID" not in os.environ:
        tasks = os.environ.get("SLURM_NTASKS", "1")
        if tasks != "1":
            warnings.warn(
                f"this is the script of a batch job of {tasks} tasks and runs as a single rank; "
                "start the program with srun to run one rank per task",
                RuntimeWarning,
                stacklevel=2,
            )
        return {"rank": 0, "size": 1, "local_rank": 0, "found_by": "Slurm (a batch script)"}
    return None if place is None or place["found_by"] == "torchrun" else place


def _has_no_address(place: Mapping[str, Any], settings: Mapping[str, str]) -> bool:
    """Returns whether the ranks meet through MPI or along cables, without rank 0's address."""
    return settings.get("backend") == "mpi" or bool(place["size"] > 1 and settings.get("hostfile"))


def _address_of_store(place: Mapping[str, Any], settings: Mapping[str, str]) -> tuple[str, str]:
    """Host and port at which rank 0 must serve torch's store."""
    from . import _core, jobs

    if place["size"] == 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return "127.0.0.1", str(free.getsockname()[1])
    root = _core.meeting_point(settings, dict(os.environ))
    host, port = jobs.split_address(root)
    # With MPICH's launcher, the address was chosen for this call, so torch's store may use it. With
    # other launchers, MCCL's own store may use the address, so torch's store uses the next port, as
    # under mccl launch.
    made_now = place["found_by"] == "MPICH" and not settings.get("root")
    if port == 65535 and not made_now:
        raise ValueError(
            f"the ranks meet at {root}: expected a port below 65535, because torch's store uses "
            "the next port"
        )
    return host, str(port if made_now else port + 1)
