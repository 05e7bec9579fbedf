"""Runs an MLX program on MCCL, unchanged.

    python -m mccl.mlx script.py [arguments]
    python -m mccl.mlx -m mlx_lm generate [arguments]

`mx.distributed.init()` and all operations of `mx.distributed` then use MCCL. Run this command once
per rank, with MLX_RANK and MLX_HOSTFILE set, or MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT; see
docs/mlx.md.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Replaces MLX's backends with MCCL, then runs the given program as python would."""
    parser = argparse.ArgumentParser(
        prog="python -m mccl.mlx",
        usage="%(prog)s [-h] (script.py | -m module) [arguments …]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-m", dest="module", action="store_true", help="the program is a module, not a file"
    )
    parser.add_argument("program", help="the script, or with -m the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    given = parser.parse_args()
    if not given.module and not Path(given.program).exists():
        parser.error(f"no such file: {given.program}")

    from .install import install

    try:
        install()
    except ImportError as error:
        sys.exit(f"mccl.mlx: {error}")
    sys.argv = [given.program, *given.arguments]
    if given.module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(given.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(given.program).resolve().parent)
        runpy.run_path(given.program, run_name="__main__")


main()
