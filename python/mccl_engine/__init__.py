"""Detects another distribution whose package is also called `mccl`.

If both are installed, the later one has overwritten files of the earlier one. So this check is in a
package whose name no other distribution uses. Every `import mccl` runs the check, so it must be
fast.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

DISTRIBUTION = "mccl-engine"


def require_alone() -> None:
    """Checks that no other distribution with a package `mccl` is installed.

    Raises:
        ImportError: The other distribution is installed too.
    """
    other = _other_distribution()
    if other is not None:
        raise ImportError(
            f"two installed distributions both contain a package mccl: {DISTRIBUTION}, which is "
            f"this one, and {other}. Files of one have replaced files of the other. Remove both "
            f"and install the one you want: {_pip('uninstall')} --yes mccl {DISTRIBUTION} && "
            f"{install_command()}",
            name="mccl",
        )


def install_command(*options: str) -> str:
    """Returns the command that rebuilds MCCL for the installed versions of torch and MLX."""
    return " ".join([_pip("install"), "--force-reinstall", "--no-deps", *options, _source()])


def autoload() -> None:
    """Registers the backend with torch. torch calls this while it is imported. Never raises.

    If the other distribution is installed, this function warns, and a later import of mccl raises
    ImportError. A program that uses torch without mccl can continue.
    """
    try:
        require_alone()
    except ImportError as error:
        import warnings

        warnings.warn(str(error), stacklevel=2)
        sys.meta_path.insert(0, _Refusal(str(error)))
        return
    try:
        import mccl

        mccl._autoload()
    except Exception as error:
        import warnings

        warnings.warn(f"mccl could not register with torch.distributed: {error}", stacklevel=2)


def after_import(name: str, action: Callable[[], object]) -> None:
    """Registers `action` to run at the end of the import of a module that is not imported yet.

    An exception of `action` makes the import fail. Later actions for the same module are ignored.
    """
    if not any(
        isinstance(finder, _AfterImport) and finder.name == name for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, _AfterImport(name, action))


class _AfterImport:
    """Import finder for one module: loads it as usual, and then runs an action."""

    def __init__(self, name: str, action: Callable[[], object]) -> None:
        self.name = name
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self._action()
                sys.meta_path.remove(self)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


class _Refusal:
    """Import finder that makes every import of mccl fail."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "mccl":
            raise ImportError(self._reason, name=name)
        return None


def _other_distribution() -> str | None:
    """Name, version and folder of an installed distribution "mccl"; None if there is none.

    Does not use importlib.metadata, whose import takes longer than the rest of `import mccl`.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            stem, ending = os.path.splitext(name)
            if stem.startswith("mccl-") and ending in (".dist-info", ".egg-info"):
                version = stem.split("-")[1]
                return f"mccl {version} in {os.path.abspath(folder)}"
            if name == "mccl.egg-link":
                return f"mccl in {os.path.abspath(folder)}"
    return None


def _pip(command: str) -> str:
    return f"{shlex.quote(sys.executable or 'python')} -m pip {command}"


def _source() -> str:
    """The source from which MCCL was installed, as an argument of pip."""
    # Imported here because only error messages need it.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    folder = unquote(urlparse(origin.get("url", "")).path)
    if "dir_info" not in origin or not os.path.isfile(os.path.join(folder, "pyproject.toml")):
        return "SOURCE (SOURCE is the folder of MCCL's sources, which holds its pyproject.toml)"
    editable = origin["dir_info"].get("editable", False)
    return ("--editable " if editable else "") + shlex.quote(folder)
