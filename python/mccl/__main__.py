"""Runs the installed program `mccl`, for `python -m mccl`."""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import mccl_engine


def require_program() -> Path:
    """Returns the path of the program. Ends this process with a message if it is not installed."""
    try:
        files = distribution(mccl_engine.DISTRIBUTION).files or []
    except PackageNotFoundError:
        files = []
    installed = [Path(str(file.locate())) for file in files if file.name == "mccl"]
    for place in (*installed, Path(sysconfig.get_path("scripts"), "mccl")):
        if place.is_file() and os.access(place, os.X_OK):
            return place.resolve()
    sys.exit(
        "mccl: the program `mccl` is not installed with this package; install it: "
        + mccl_engine.install_command()
    )


def main() -> None:
    """Replaces this process with the program."""
    os.execv(require_program(), ["mccl", *sys.argv[1:]])


if __name__ == "__main__":
    main()
