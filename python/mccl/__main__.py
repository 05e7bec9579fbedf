"""`python -m mccl` runs the program `mccl`."""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import mccl_engine


def find_program() -> Path | None:
    """The path of the program of this installation; None if it is not installed."""
    try:
        files = distribution(mccl_engine.DISTRIBUTION).files or []
    except PackageNotFoundError:
        files = []
    installed = [Path(str(file.locate())) for file in files if file.name == "mccl"]
    for place in (*installed, Path(sysconfig.get_path("scripts"), "mccl")):
        if place.is_file() and os.access(place, os.X_OK):
            return place.resolve()
    return None


def main() -> None:
    """Replaces this process with the program."""
    program = find_program()
    if program is None:
        sys.exit(
            "mccl: the program `mccl` is not installed with this package; install it: "
            + mccl_engine.install_command()
        )
    os.execv(program, ["mccl", *sys.argv[1:]])


if __name__ == "__main__":
    main()
