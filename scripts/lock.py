#!/usr/bin/env python3
"""Pins the Python packages that set-up installs, with their hashes.

lock.py --tag                  prints the name of this kind of machine, such as cp311-linux-x86_64
lock.py TORCH FILE...          resolves torch==TORCH and the requirements in the files, and prints a
                               lock file for this kind of machine

A lock is valid only for the interpreter, system and processor in its name, because wheels for
others have other hashes. pip checks the hashes if it is given --require-hashes.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HEADER = """\
# Written by `make lock` for {tag}. Installed with --require-hashes on that kind of machine alone.
"""


def tag() -> str:
    """Returns the name of this kind of machine, which is part of a lock's file name."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{python}-{platform.system()}-{platform.machine()}".lower()


def resolve(torch: str, files: list[str]) -> list[dict[str, Any]]:
    """Returns pip's report about each package that would be installed into an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--disable-pip-version-check", "--report", str(report)]
        command.append(f"torch=={torch}")
        for file in files:
            command += ["-r", file]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return json.loads(report.read_text())["install"]


def line_of(package: dict[str, Any]) -> str:
    """Returns the line of a lock file that pins a package to one file. Names no index."""
    metadata = package["metadata"]
    digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
    name = metadata["name"].lower().replace("_", "-").replace(".", "-")
    return f"{name}=={metadata['version']} --hash=sha256:{digest}\n"


def main() -> int:
    """Runs the command line."""
    if sys.argv[1:] == ["--tag"]:
        print(tag())
        return 0
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    lines = sorted(line_of(package) for package in resolve(sys.argv[1], sys.argv[2:]))
    sys.stdout.write(HEADER.format(tag=tag()) + "".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
