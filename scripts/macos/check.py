"""Lists defects of programs and libraries made for macOS, which cannot run here.

    check.py --minimum 14.0 [--stub LIST]... [--beside FILE]... FILE...

A library that a file loads must provide every symbol that the file needs from it. The symbols of a
library are known from a list (--stub, cmake/macos/*.symbols), or from the library itself: one of
the FILEs, or one in a wheel for Macs (--beside). The linker has already checked symbols of the
system. The Python interpreter provides its own symbols.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from macos.macho import Image, read, short_name
from macos.stub import read_list

#: The linker checks symbols of these itself, with a list that Apple maintains.
SYSTEM = ("/usr/lib/libSystem.B.dylib",)

#: Prefixes of library names that are valid on every Mac.
EVERYWHERE = ("@rpath/", "@loader_path/", "/usr/lib/", "/System/Library/")

#: Symbols that the interpreter provides.
OF_PYTHON = re.compile(r"^__?Py")


def version(text: str) -> tuple[int, ...]:
    """Parses a version into numbers that can be compared."""
    return tuple(int(part) for part in text.split("."))


def faults(image: Image, minimum: str, providers: dict[str, set[str]]) -> list[str]:
    """Lists the defects of a file. `providers` maps library names to their known symbols."""
    found = []
    if image.architecture != "arm64":
        found.append(f"is for {image.architecture or 'an unknown machine'}, expected arm64")
    if not image.minimum or version(image.minimum) != version(minimum):
        found.append(f"requires macOS {image.minimum or 'of unknown version'}, expected {minimum}")
    if not image.signed:
        found.append("is not signed, so macOS refuses to run it")
    by_short = {short_name(name): name for name in image.libraries}
    for name in image.libraries:
        if name not in providers and name not in SYSTEM:
            found.append(f"loads {name}, which is not a known library of macOS")
        elif not name.startswith(EVERYWHERE):
            found.append(f"loads {name}, a path on the build machine")
        elif name.startswith("@rpath/") and not image.searched:
            found.append(f"loads {name}, but has no rpath to find it")
    if image.name and not image.name.startswith(EVERYWHERE):
        found.append(f"has the install name {image.name}, a path on the build machine")
    for needed in image.needed:
        library = by_short.get(needed.library, "")
        if not needed.library:
            if not OF_PYTHON.match(needed.symbol):
                found.append(f"needs {needed.symbol} from an unspecified library")
        elif not library:
            found.append(f"needs {needed.symbol} from {needed.library}, which it does not load")
        elif library in providers and needed.symbol not in providers[library]:
            found.append(f"needs {needed.symbol}, which {library} is not known to provide")
    # A second C++ library in the process would have its own types and exceptions.
    if "__ZTISt9exception" in image.provided:
        found.append("contains its own C++ library; it must use the system's")
    return found


def main(arguments: Sequence[str]) -> int:
    """Checks the files. Returns 1 if any has a defect."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minimum", required=True, help="the oldest macOS, such as 14.0")
    parser.add_argument("--stub", type=Path, action="append", default=[])
    parser.add_argument("--beside", type=Path, action="append", default=[])
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args(arguments)

    images = [read(path) for path in given.files]
    providers: dict[str, set[str]] = {}
    for path in given.stub:
        name, symbols = read_list(path)
        providers[name] = set(symbols)
    for image in [read(path) for path in given.beside] + images:
        if image.name:
            providers[image.name] = image.provided
    wrong = 0
    for image in images:
        found = faults(image, given.minimum, providers)
        for fault in found:
            print(f"macos: {image.path} {fault}", file=sys.stderr)
        wrong += len(found)
        if not found:
            loads = ", ".join(name.rsplit("/", 1)[-1] for name in image.libraries)
            print(
                f"macos: {image.path.name}: arm64, macOS {image.minimum} and newer, signed; "
                f"{len(image.needed)} symbols, all provided by {loads}"
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
