"""Finds the extension that was built for the installed torch or MLX."""

from __future__ import annotations

import importlib
import sys

import mccl_engine

#: How many parts of a framework's version the name of its extension has. torch keeps its ABI in
#: patch releases, MLX does not.
_PARTS = {"torch": 2, "mlx": 3}


def module_for(name: str, running: str) -> str:
    """Returns the extension's module, such as mccl._torch_2_11, for version `running` of `name`.

    Raises:
        ImportError: There is no extension for that version, or it is for another Python. This is
            checked before a module is loaded, because an incompatible one would crash.
    """
    label = {"torch": "torch", "mlx": "MLX"}[name]
    built = importlib.import_module("mccl._built_for")
    versions = getattr(built, name.upper())
    if not versions:
        raise ImportError(
            f"mccl was installed without its {label} extension, because the build found no "
            f"{label}; install it again: {mccl_engine.install_command()}"
        )
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted = _release(running, _PARTS[name])
    if wanted not in [_release(each, _PARTS[name]) for each in versions] or built.PYTHON != python:
        raise ImportError(
            f"mccl's {label} extension was built for {label} {_listed(versions)} and Python "
            f"{built.PYTHON}, but this is {label} {running} and Python {python}; install a "
            f"matching {label}, or build mccl again: {mccl_engine.install_command()}"
        )
    return "_".join([f"mccl._{name}", *wanted])


def _release(version: str, parts: int) -> list[str]:
    return version.split("+")[0].split(".")[:parts]


def _listed(versions: list[str]) -> str:
    *others, last = versions
    return f"{', '.join(others)} or {last}" if others else last
