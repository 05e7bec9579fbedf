"""Runs MCCL from C++, through the `mccl` program."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from comparison.contestant import PEERS, ROOT, Command, Contestant, Launch, Setting


def mccl_program() -> Path | None:
    """Finds the `mccl` program: named by BENCH_PROGRAM, beside this python, or in the build."""
    named = os.environ.get("BENCH_PROGRAM")
    here = [Path(sys.executable).parent / "mccl", *sorted((ROOT / "build/release").glob("**/mccl"))]
    found = [Path(named)] if named else here
    programs = [path for path in found if path.is_file() and os.access(path, os.X_OK)]
    return programs[0].resolve() if programs else None


def mccl_missing() -> str | None:
    return None if mccl_program() else "the `mccl` program is not built: run `make build`"


def mccl_contestant(name: str, transport: str, collectives: Sequence[str]) -> Contestant:
    def commands(launch: Launch) -> list[Command]:
        script = [sys.executable, str(PEERS / "mccl_bench.py"), "--program", str(mccl_program())]
        choice = ["--transport", transport, "--ranks", str(launch.ranks)]
        return [Command([*script, *choice, *launch.arguments()], {"MCCL_PORT_BASE": "0"})]

    words = "the defaults" if transport == "auto" else f"MCCL_TRANSPORT={transport}"
    title = "MCCL, C++" if transport == "auto" else f"MCCL, C++, {transport.upper()}"
    return Contestant(
        name, title, mccl_missing, lambda ranks: [Setting(words)], commands, collectives
    )
