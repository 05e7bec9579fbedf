"""MCCL under `mx.distributed`: groups that every MLX program can use.

::

    import mlx.core as mx
    import mccl.mlx

    world = mccl.mlx.init()
    print(world.rank(), mx.distributed.all_sum(mx.ones(10), group=world))

Unchanged programs run on MCCL too: `mccl.mlx.install()`, or `python -m mccl.mlx script.py`.
docs/mlx.md has more examples, up to tensor-parallel inference.
"""

# ruff: noqa: E402  (a version mismatch must be reported before MLX is used)
from __future__ import annotations

from .loader import load as _load

_load()

from .compression import Compression
from .gradients import average_gradients
from .install import install, is_installed, uninstall
from .operations import (
    all_gather,
    all_mean,
    all_sum,
    all_to_all,
    barrier,
    broadcast,
    gather,
    reduce,
    scatter,
    sum_scatter,
)
from .registry import default_group, init, is_available, reconfigure, shrink

__all__ = [
    "Compression",
    "all_gather",
    "all_mean",
    "all_sum",
    "all_to_all",
    "average_gradients",
    "barrier",
    "broadcast",
    "default_group",
    "gather",
    "init",
    "install",
    "is_available",
    "is_installed",
    "reconfigure",
    "reduce",
    "scatter",
    "shrink",
    "sum_scatter",
    "uninstall",
]
