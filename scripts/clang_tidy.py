#!/usr/bin/env python3
"""Runs clang-tidy over the sources of the library that changed since they were last clean.

clang_tidy.py BUILD_FOLDER [JOBS] [--all]

A clean source leaves a stamp in BUILD_FOLDER/clang_tidy. The stamp is a hash of clang-tidy's
version, its configuration, the compile command, the source, and every header that it includes.
The source is skipped as long as that hash stays the same. --all checks every source.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# compile_commands.json is written for g++, and clang does not know all of its flags.
OPTIONS = ("--quiet", "--extra-arg=-Wno-unknown-warning-option")
# Options of g++ that clang refuses. It cannot read headers that g++ precompiled either; without
# them, each source must include what it uses.
OF_GCC = re.compile(
    r" -mmemset-strategy=\S+| -Winvalid-pch| -fpch-preprocess| -include \S*cmake_pch\.hxx"
)
# A unity build compiles one file that includes several sources. Each source is checked by itself.
UNITED = re.compile(r'#include "(\S+\.cpp)"')
NOISE = re.compile(r".*warnings? (?:generated|treated as).*\n")


@dataclass
class Source:
    """A source, and the stamp that records that it was clean."""

    path: Path
    key: str | None  # None: its headers are unknown, so it is always checked
    stamp: Path

    def is_clean(self) -> bool:
        """True if clang-tidy found nothing in the current state of the source."""
        return self.key is not None and self.stamp.is_file() and self.stamp.read_text() == self.key

    def check(self, commands: Path) -> bool:
        """Runs clang-tidy with a folder's compile commands. Returns True if it found nothing."""
        done = subprocess.run(
            ["clang-tidy", "-p", commands, *OPTIONS, self.path], capture_output=True, text=True
        )
        sys.stdout.write(NOISE.sub("", done.stdout + done.stderr))
        sys.stdout.flush()
        self.stamp.unlink(missing_ok=True)
        if done.returncode == 0 and self.key is not None:
            self.stamp.write_text(self.key)
        return done.returncode == 0


def stamps(build: Path) -> Path:
    """Returns the folder of stamps and of the compile commands for clang."""
    return build / "clang_tidy"


@functools.cache
def digest(path: Path) -> str:
    """Returns the hash of one file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def inputs_of_objects(build: Path) -> dict[str, list[Path]]:
    """Returns the headers of each object, as ninja recorded them.

    A unity file includes other sources. They are left out, because clang-tidy reads them apart.
    """
    try:
        listed = subprocess.run(
            ["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return {}
    inputs: dict[str, list[Path]] = {}
    for entry in listed.stdout.split("\n\n"):
        head, *paths = entry.strip().split("\n")
        if head.endswith("(VALID)"):
            files = [build / path.strip() for path in paths]
            inputs[head.split(":")[0]] = [f for f in files if f.suffix not in (".cpp", ".cxx")]
    return inputs


def one_by_one(commands: list[dict]) -> list[dict]:
    """Returns the compile commands; a unity file is replaced by the sources that it includes."""
    found = []
    for entry in commands:
        file = Path(entry["file"])
        united = UNITED.findall(file.read_text()) if "/Unity/" in entry["file"] else []
        for path in united or [entry["file"]]:
            command = entry["command"].replace(f" -c {file}", f" -c {path}")
            found.append(entry | {"file": path, "command": command})
    return found


def sources(build: Path) -> list[Source]:
    """Returns the sources under src/ that are built on this platform."""
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    settings = version + (ROOT / ".clang-tidy").read_bytes() + " ".join(OPTIONS).encode()
    inputs = inputs_of_objects(build)
    found = {}
    commands = one_by_one(json.loads((build / "compile_commands.json").read_text()))
    for entry in commands:
        entry["command"] = OF_GCC.sub("", entry["command"])
        path = Path(entry["file"])
        if not path.is_relative_to(ROOT / "src"):
            continue
        key = None
        built = re.search(r" -o (\S+)", entry["command"])
        files = inputs.get(built[1] if built else "", [])
        if files and all(file.is_file() for file in files):
            parts = [entry["command"], *(f"{file} {digest(file)}" for file in [path, *files])]
            key = hashlib.sha256(settings + "\n".join(parts).encode()).hexdigest()
        name = path.relative_to(ROOT).as_posix().replace("/", "-")
        found[path] = Source(path, key, stamps(build) / name)
    stamps(build).mkdir(exist_ok=True)
    (stamps(build) / "compile_commands.json").write_text(json.dumps(commands))
    return [found[path] for path in sorted(found)]


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build", type=Path, help="folder of compile_commands.json")
    parser.add_argument("jobs", type=int, nargs="?", default=1)
    parser.add_argument("--all", action="store_true", help="check clean sources too")
    arguments = parser.parse_args()
    build = arguments.build.resolve()

    everything = sources(build)
    if not everything:
        sys.exit(f"clang_tidy.py: {build}/compile_commands.json lists no source of src/")
    todo = [source for source in everything if arguments.all or not source.is_clean()]
    rest = len(everything) - len(todo)
    print(f"lint: clang-tidy, {len(todo)} files; {rest} are clean already", flush=True)
    with ThreadPoolExecutor(max(arguments.jobs, 1)) as threads:
        return 0 if all(list(threads.map(lambda source: source.check(stamps(build)), todo))) else 1


if __name__ == "__main__":
    sys.exit(main())
