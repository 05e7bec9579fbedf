"""The compiled part of mccl.mlx, and the check that it matches the installed MLX."""

from __future__ import annotations

import atexit
import importlib
import os
from functools import cache
from typing import TYPE_CHECKING

import mccl_engine
from mccl import extensions

if TYPE_CHECKING:
    from types import ModuleType


def load() -> ModuleType:
    """The extension module for the installed MLX.

    Raises:
        ImportError: MLX is missing, or there is no extension for this MLX, its nanobind and Python.
            This is checked before MLX is used, because a mismatch would crash.
    """
    # This function cannot be cached as a whole: with MCCL_MLX set, importing MLX calls it.
    return _extension_for(_import_mlx())


@cache
def _extension_for(core: ModuleType) -> ModuleType:
    shim = importlib.import_module(extensions.module_for("mlx", core.__version__))
    try:
        shim.accepts(core.array(0))
    except TypeError:
        from mccl import _built_for

        raise ImportError(
            f"mccl's MLX extension was built with nanobind {_built_for.NANOBIND}, and MLX "
            f"{core.__version__} with an incompatible one; install scikit-build-core and the "
            "nanobind that this MLX was built with, and build again: "
            f"{mccl_engine.install_command('--no-build-isolation')}"
        ) from None
    # Imported here, because messages.py uses MLX, which must match the extension.
    from .messages import separate

    separate(shim.is_ours)
    os.register_at_fork(
        before=shim.before_fork,
        after_in_parent=shim.after_fork_in_parent,
        after_in_child=shim.after_fork_in_child,
    )
    atexit.register(_leave, os.getpid())
    return shim


def _import_mlx() -> ModuleType:
    try:
        return importlib.import_module("mlx.core")
    except ImportError as error:
        raise ImportError(
            f"mccl.mlx needs MLX, which cannot be imported ({error}); install it: pip install mlx, "
            "and on Linux mlx-cpu of the same version"
        ) from error


def leave_first() -> None:
    """Makes the shutdown run at exit, before all functions that atexit has registered so far."""
    atexit.unregister(_leave)
    atexit.register(_leave, os.getpid())


def _leave(process: int) -> None:
    if os.getpid() == process:
        load().leave_all()
