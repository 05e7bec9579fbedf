"""Runs Open MPI and MPICH."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence

from comparison.contestant import (
    BUILT,
    INSTALL,
    PEERS,
    ROOT,
    Command,
    Launch,
    Setting,
    cores,
    loopback,
)
from comparison.mccl_program import mccl_missing, mccl_program
from peers.cells import Cell


def mpi_missing(kind: str, packages: str) -> str | None:
    if shutil.which(f"mpirun.{kind}") is None:
        return f"not installed: run `{INSTALL}` (or `apt-get install {packages}`)"
    if not (BUILT / f"mpi_bench.{kind}").exists():
        return f"bench/peers/mpi_bench.cpp is not built for this MPI: run `{INSTALL}`"
    return None


def openmpi_placement(ranks: int) -> Setting:
    if ranks <= cores():
        return Setting("ranks bound to cores, spinning", ("--bind-to", "core"))
    yielding = ("--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")
    return Setting("more ranks than cores: unbound, mpi_yield_when_idle 1", yielding)


def openmpi_settings(ranks: int) -> list[Setting]:
    place = openmpi_placement(ranks)
    shm = ("--mca", "pml", "ob1", "--mca", "btl", "self,vader")
    return [
        Setting(
            f"shared memory (vader), CMA {words}; {place.words}",
            (*place.argv, *shm, "--mca", "btl_vader_single_copy_mechanism", mechanism),
        )
        for words, mechanism in (("off", "none"), ("on", "cma"))
    ]


def openmpi_tcp_settings(ranks: int) -> list[Setting]:
    place = openmpi_placement(ranks)
    tcp = ("--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include",
           loopback())  # fmt: skip
    return [Setting(f"btl self,tcp on loopback; {place.words}", (*place.argv, *tcp))]


def openmpi_commands(launch: Launch) -> list[Command]:
    run = ["mpirun.openmpi", "-n", str(launch.ranks), *launch.setting.argv]
    program = [str(BUILT / "mpi_bench.openmpi"), *launch.arguments()]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return [Command([*run, *program], root)]


def mccl_mpi_missing() -> str | None:
    return mpi_missing("openmpi", "openmpi-bin libopenmpi-dev") or mccl_missing()


def mccl_mpi_commands(launch: Launch) -> list[Command]:
    """Returns commands for MCCL's mpi backend, with the Open MPI settings of `openmpi`."""
    mpirun = shlex.join(["mpirun.openmpi", "-n", str(launch.ranks), *launch.setting.argv])
    script = [sys.executable, str(PEERS / "mccl_bench.py"), "--program", str(mccl_program())]
    words = ["--ranks", str(launch.ranks), "--under", mpirun, *launch.arguments()]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return [Command([*script, *words], {"MCCL_BACKEND": "mpi", **root})]


LAYER_BUILT = ROOT / "build" / "release" / "bench"


def layer_missing(kind: str) -> str | None:
    """Returns why the mpi backend cannot be compared with this MPI's own call, or None."""
    if shutil.which(f"mpirun.{kind}") is None:
        return f"not installed: run `{INSTALL}`"
    if not (LAYER_BUILT / f"mpi_layer.{kind}").exists():
        return "bench/peers/mpi_layer.cpp is not built for this MPI: run `make build-bench`"
    return None


def layer_commands(kind: str, seconds: float, cells: Sequence[Cell]) -> list[Command]:
    bound = "--bind-to" if kind == "openmpi" else "-bind-to"
    run = [f"mpirun.{kind}", "-n", "2", bound, "core", str(LAYER_BUILT / f"mpi_layer.{kind}")]
    sizes = [str(cell.bytes) for cell in cells]
    words = ["--seconds", str(seconds), cells[0].collective, *sizes]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return [Command([*run, *words], root)]


def mpich_settings(ranks: int) -> list[Setting]:
    bound = ranks <= cores()
    place = "ranks bound to cores" if bound else "more ranks than cores: unbound (MPICH spins)"
    argv = ("-bind-to", "core") if bound else ()
    return [
        Setting(f"its own shared memory; {place}", argv),
        Setting(
            f"UCX's shared memory (MPIR_CVAR_NOLOCAL=1, UCX_TLS=sm,self); {place}",
            argv,
            {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "sm,self"},
        ),
    ]


def mpich_commands(launch: Launch) -> list[Command]:
    run = ["mpirun.mpich", "-n", str(launch.ranks), *launch.setting.argv]
    program = [str(BUILT / "mpi_bench.mpich"), *launch.arguments()]
    return [Command([*run, *program], launch.setting.env)]
