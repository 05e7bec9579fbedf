"""Which torch and which MLX the extensions are built for: those of the environment to install into.

pip builds in an environment of its own, whose interpreter is that of the target with the target's
packages hidden from it. So the interpreter is asked twice: as it was started, and without what pip
puts into its environment to hide them.

As a program it prints the folder of each, as in TORCH=/folder, and nothing after the sign where one
is not there; CMake reads that. scikit-build-core calls dynamic_metadata(): the version of the
distribution says what it was built for, because that is all that pip shows of a good build.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

NAMES = ("torch", "mlx")

#: Prints the folder of each. Importing torch would take seconds, and fail where it only lies.
_ASK = """
from importlib.util import find_spec
for name in ("torch", "mlx.core"):
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        spec = None
    print(spec.origin if spec and spec.origin else "")
"""

#: What hides the packages of the target, or of its user.
_HIDING = ("PYTHONPATH", "PYTHONNOUSERSITE")


def folders() -> dict[str, Path]:
    """Where torch and mlx lie, by name; what is not installed is left out."""
    seen = dict(os.environ)
    unhidden = {name: value for name, value in seen.items() if name not in _HIDING}
    found: dict[str, Path] = {}
    for environment in (unhidden, seen):
        # Without the working folder: the build has folders of these names.
        asked = subprocess.run(
            [sys.executable, "-P", "-c", _ASK],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        for name, origin in zip(NAMES, asked.stdout.split("\n"), strict=False):
            if origin:
                # Links resolved: what was built for a folder by one name is good under another.
                found[name] = Path(origin).parent.resolve()
    return found


def torch_version(folder: Path) -> str:
    """Major and minor: the extension fits every patch of them."""
    return _first(folder / "version.py", r"^__version__ = '(\d+\.\d+)")


def mlx_version(folder: Path) -> str:
    """Major, minor and patch: the extension fits no other."""
    header = folder / "include" / "mlx" / "version.h"
    parts = [_first(header, rf"MLX_VERSION_{part} (\d+)") for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(parts)


def local_version(found: dict[str, Path]) -> str:
    """What follows the version's plus sign, such as torch2.11.without.mlx."""
    there = []
    if "torch" in found:
        there.append("torch" + torch_version(found["torch"]))
    if "mlx" in found:
        there.append("mlx" + mlx_version(found["mlx"]))
    missing = [name for name in NAMES if name not in found]
    return ".".join(there + (["without", *missing] if missing else []))


def dynamic_metadata(field: str, settings: dict[str, str]) -> str:
    """The version of the distribution; see scikit-build-core's dynamic metadata."""
    if field != "version":
        raise ValueError(f"{field} is not for cmake/frameworks.py to say")
    return f"{release_of(Path(settings['input']))}+{local_version(folders())}"


def release_of(cmake: Path) -> str:
    """The release, as CMakeLists.txt has it."""
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
