"""The compiled part of mccl.mlx, and the check that it matches the installed MLX."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from functools import cache
from typing import TYPE_CHECKING

import mccl_engine

if TYPE_CHECKING:
    from types import ModuleType


def load() -> ModuleType:
    """The extension module `mccl._mlx`.

    Raises:
        ImportError: MLX or the extension is missing, or the extension was built for another MLX,
            nanobind or Python. This is checked before MLX is used, because a mismatch would crash.
    """
    # This function cannot be cached as a whole: with MCCL_MLX set, importing MLX calls it.
    return _extension_for(_import_mlx())


@cache
def _extension_for(core: ModuleType) -> ModuleType:
    build = _require_matching_build(core.__version__)
    shim = importlib.import_module("mccl._mlx")
    try:
        shim.accepts(core.array(0))
    except TypeError:
        raise ImportError(
            f"mccl's MLX extension was built with nanobind {build.NANOBIND}, and MLX "
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


def _require_matching_build(mlx: str) -> ModuleType:
    try:
        build = importlib.import_module("mccl._mlx_build")
    except ImportError:
        raise ImportError(
            "mccl was installed without its MLX extension, because the build found no MLX; "
            f"install it again: {mccl_engine.install_command()}"
        ) from None
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if _release(build.MLX) != _release(mlx) or build.PYTHON != python:
        raise ImportError(
            f"mccl's MLX extension was built for MLX {build.MLX} and Python {build.PYTHON}, but "
            f"this is MLX {mlx} and Python {python}; build it again: "
            f"{mccl_engine.install_command()}"
        )
    return build


def _release(version: str) -> tuple[str, ...]:
    """Returns major, minor and patch number, which identify the code of MLX."""
    return tuple(version.split("+")[0].split(".")[:3])


def leave_first() -> None:
    """Makes the shutdown run at exit, before all functions that atexit has registered so far."""
    atexit.unregister(_leave)
    atexit.register(_leave, os.getpid())


def _leave(process: int) -> None:
    if os.getpid() == process:
        load().leave_all()
