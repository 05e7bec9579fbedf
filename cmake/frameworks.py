"""Finds the torch and the MLX of the target environment, for which the extensions are built.

pip builds in an isolated environment: it runs the target's interpreter but hides the target's
packages through environment variables. So the interpreter is asked twice, with and without these
variables.

As a program, it prints the folder of each for CMake, such as TORCH=/folder. The folder is empty if
the framework is not installed. scikit-build-core calls dynamic_metadata() for the version of the
distribution. The version names the frameworks, because pip shows nothing else of a successful
build.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

NAMES = ("torch", "mlx")

#: Prints the folder of each framework. It imports neither: torch would take seconds, and may fail.
_ASK = """
from importlib.util import find_spec
for name in ("torch", "mlx.core"):
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        spec = None
    print(spec.origin if spec and spec.origin else "")
"""

#: Environment variables that hide the packages of the target or of its user.
_HIDING = ("PYTHONPATH", "PYTHONNOUSERSITE")


def folders() -> dict[str, Path]:
    """Returns the folders of torch and mlx by name, without those that are not installed."""
    seen = dict(os.environ)
    unhidden = {name: value for name, value in seen.items() if name not in _HIDING}
    found: dict[str, Path] = {}
    for environment in (unhidden, seen):
        # -P omits the working folder, because the build has folders with these names.
        asked = subprocess.run(
            [sys.executable, "-P", "-c", _ASK],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        for name, origin in zip(NAMES, asked.stdout.split("\n"), strict=False):
            if origin:
                # Resolve links, so that a folder has the same name in every build.
                found[name] = Path(origin).parent.resolve()
    return found


def torch_version(folder: Path) -> str:
    """Returns major and minor: the extension works with every patch release of them."""
    return _first(folder / "version.py", r"^__version__ = '(\d+\.\d+)")


def mlx_version(folder: Path) -> str:
    """Returns major, minor and patch: the extension works with no other version."""
    header = folder / "include" / "mlx" / "version.h"
    parts = [_first(header, rf"MLX_VERSION_{part} (\d+)") for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(parts)


def local_version(found: dict[str, Path]) -> str:
    """Returns the part after the version's plus sign, such as torch2.11.without.mlx."""
    there = []
    if "torch" in found:
        there.append("torch" + torch_version(found["torch"]))
    if "mlx" in found:
        there.append("mlx" + mlx_version(found["mlx"]))
    missing = [name for name in NAMES if name not in found]
    return ".".join(there + (["without", *missing] if missing else []))


def dynamic_metadata(field: str, settings: dict[str, str]) -> str:
    """Returns the version of the distribution; see scikit-build-core's dynamic metadata."""
    if field != "version":
        raise ValueError(f"{field} is not for cmake/frameworks.py to say")
    return f"{release_of(Path(settings['input']))}+{local_version(folders())}"


def release_of(cmake: Path) -> str:
    """Returns the release that CMakeLists.txt states."""
    return _first(cmake, r"project\(mccl VERSION ([0-9.]+)")


def _first(file: Path, pattern: str) -> str:
    if not file.is_file():
        raise FileNotFoundError(
            f"{file} is missing, so nothing can be built for what lies in {file.parent}: install "
            "that again, or uninstall it, and then install MCCL again"
        )
    found = re.search(pattern, file.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{file}: nothing there matches {pattern}")
    return found[1]


if __name__ == "__main__":
    places = folders()
    for name in NAMES:
        print(f"{name.upper()}={places.get(name, '')}")
