"""Finds the versions of torch and MLX for which the extensions are built.

These are the versions of the target environment. pip builds in an isolated environment: it runs the
target's interpreter but hides the target's packages through environment variables. So the
interpreter is asked twice, with and without these variables.

If MCCL_FRAMEWORKS is set, they are instead all versions in that folder, where
scripts/fetch_frameworks.sh puts them.

CMake runs this file, which then prints the folders of each framework, such as TORCH=/folder;/other.
The list is empty if there is no such framework. scikit-build-core calls dynamic_metadata() for the
version of the distribution. The version names the frameworks, because pip shows nothing else of a
successful build. With MCCL_FRAMEWORKS it does not, because a package index refuses such versions.
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


def folders() -> dict[str, list[Path]]:
    """Returns the folders of torch and mlx by name, without those that do not exist."""
    if fetched := os.environ.get("MCCL_FRAMEWORKS"):
        every = {name: sorted(Path(fetched).resolve().glob(f"{name}-*/{name}")) for name in NAMES}
        if not any(every.values()):
            raise FileNotFoundError(
                f"MCCL_FRAMEWORKS={fetched} has no folder such as torch-2.11.0/torch: run "
                "scripts/fetch_frameworks.sh"
            )
        return {name: found for name, found in every.items() if found}
    return {name: [folder] for name, folder in _installed().items()}


def _installed() -> dict[str, Path]:
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


def local_version(found: dict[str, list[Path]]) -> str:
    """Returns the part after the version's plus sign, such as torch2.11.without.mlx."""
    there = ["torch" + torch_version(folder) for folder in found.get("torch", [])]
    there += ["mlx" + mlx_version(folder) for folder in found.get("mlx", [])]
    missing = [name for name in NAMES if name not in found]
    return ".".join(there + (["without", *missing] if missing else []))


def dynamic_metadata(field: str, settings: dict[str, str]) -> str:
    """Returns the version of the distribution; see scikit-build-core's dynamic metadata."""
    if field != "version":
        raise ValueError(f"{field} is not for cmake/frameworks.py to say")
    release = release_of(Path(settings["input"]))
    found = folders()
    return release if "MCCL_FRAMEWORKS" in os.environ else f"{release}+{local_version(found)}"


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
        print(f"{name.upper()}={';'.join(map(str, places.get(name, [])))}")
