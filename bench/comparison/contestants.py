"""Lists the contestants: MCCL through each interface, and its peers."""

from __future__ import annotations

from comparison.contestant import Contestant
from comparison.mccl_numpy import MCCL_NUMPY
from comparison.mccl_program import mccl_contestant
from comparison.mlx import mccl_mlx_contestant, ring_contestant
from comparison.mpi import (
    mccl_mpi_commands,
    mccl_mpi_missing,
    mpi_missing,
    mpich_commands,
    mpich_settings,
    openmpi_commands,
    openmpi_settings,
    openmpi_tcp_settings,
)
from comparison.sizes import COLLECTIVES
from comparison.torch_backends import GLOO, MCCL_TORCH, torch_contestant

CONTESTANTS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        mccl_contestant("mccl", "auto", COLLECTIVES),
        torch_contestant("mccl-torch", "MCCL, torch", "mccl", MCCL_TORCH),
        MCCL_NUMPY,
        torch_contestant("gloo", "Gloo, torch", "gloo", GLOO),
        Contestant(
            "openmpi",
            "Open MPI",
            lambda: mpi_missing("openmpi", "openmpi-bin libopenmpi-dev"),
            openmpi_settings,
            openmpi_commands,
        ),
        Contestant(
            "mpich",
            "MPICH",
            lambda: mpi_missing("mpich", "mpich libmpich-dev"),
            mpich_settings,
            mpich_commands,
        ),
        Contestant(
            "mccl-mpi",
            "MCCL, Open MPI",
            mccl_mpi_missing,
            openmpi_settings,
            mccl_mpi_commands,
        ),
        ring_contestant(),
        mccl_mlx_contestant("mccl-mlx", "auto"),
        mccl_mlx_contestant("mccl-mlx-tcp", "tcp"),
        mccl_contestant("mccl-tcp", "tcp", ("all_reduce",)),
        Contestant(
            "openmpi-tcp",
            "Open MPI, TCP",
            lambda: mpi_missing("openmpi", "openmpi-bin libopenmpi-dev"),
            openmpi_tcp_settings,
            openmpi_commands,
            ("all_reduce",),
        ),
    )
}

PEERS_ALL = ("gloo", "openmpi", "mpich", "mlx")
