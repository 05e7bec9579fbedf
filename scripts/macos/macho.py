"""Reads the properties of a library or program for macOS with LLVM's tools."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

#: In nm's output, a library's name is its file name up to the first dot.
_SHORT = re.compile(r"^(?P<name>[^.]+)")

#: Load commands by which a file names a library that it loads.
LOADS = ("LC_LOAD_DYLIB", "LC_LOAD_WEAK_DYLIB", "LC_REEXPORT_DYLIB", "LC_LAZY_LOAD_DYLIB")


@dataclass(frozen=True)
class Needed:
    """A symbol that a file needs from a library."""

    symbol: str
    library: str  #: in nm's short form, such as libc++; empty: any library
    weak: bool = False  #: the symbol may be missing


@dataclass
class Image:
    """One Mach-O file of one architecture."""

    path: Path
    architecture: str = ""
    minimum: str = ""  #: the oldest macOS on which it runs
    name: str = ""  #: the name by which others load it; empty for programs and extensions
    libraries: list[str] = field(default_factory=list)  #: the libraries that it loads
    searched: list[str] = field(default_factory=list)  #: where @rpath is looked up
    signed: bool = False
    needed: list[Needed] = field(default_factory=list)
    provided: set[str] = field(default_factory=set)


def short_name(library: str) -> str:
    """Returns nm's short form of the name by which a library is loaded."""
    found = _SHORT.match(library.rsplit("/", 1)[-1])
    return found["name"] if found else library


def read_headers(text: str, image: Image) -> None:
    """Reads the output of objdump --private-headers into `image`."""
    command = ""
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if words[0] == "cmd":
            command = words[1]
            image.signed = image.signed or command == "LC_CODE_SIGNATURE"
        elif words[0] == "minos":
            image.minimum = words[1]
        elif words[0] == "MH_MAGIC_64":
            image.architecture = words[1].lower()
        elif words[0] == "name" and command == "LC_ID_DYLIB":
            image.name = words[1]
        elif words[0] == "name" and command in LOADS:
            image.libraries.append(words[1])
        elif words[0] == "path" and command == "LC_RPATH":
            image.searched.append(words[1])


def read_symbols(text: str, image: Image) -> None:
    """Reads the output of nm --format=darwin into `image`."""
    asked = re.compile(
        r"\(undefined[^)]*\) (?P<weak>weak )?(?:private )?external (?P<symbol>\S+)"
        r"(?: \((?:from (?P<library>[^)]+)|dynamically looked up)\))?"
    )
    given = re.compile(r"\([^)]*,[^)]*\) (?:weak )?external (?:\[[^]]*\] )*(?P<symbol>\S+)$")
    for line in text.splitlines():
        if found := asked.search(line):
            image.needed.append(
                Needed(found["symbol"], found["library"] or "", found["weak"] is not None)
            )
        elif found := given.search(line):
            image.provided.add(found["symbol"])


def _run(tool: str, *arguments: str) -> str:
    names = [f"llvm-{tool}", *(f"llvm-{tool}-{version}" for version in range(30, 13, -1))]
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        raise FileNotFoundError(f"llvm-{tool} is not installed: install Debian's package llvm")
    return subprocess.run(
        [program, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def read(path: Path) -> Image:
    """Reads a file. For a file with several architectures, reads the part for arm64."""
    image = Image(path)
    read_headers(_run("objdump", "--macho", "--arch=arm64", "--private-headers", str(path)), image)
    read_symbols(_run("nm", "--format=darwin", "--arch=arm64", str(path)), image)
    return image
