"""Writes the stub of a macOS library for the linker: its name and the symbols that it provides.

A list of symbols (cmake/macos/*.symbols) has comments, a line "library: NAME" with the name by
which programs load the library, and one symbol per line. As a program: stub.py LIST TARGET.tbd.
"""

from __future__ import annotations

import sys
from pathlib import Path


def read_list(path: Path) -> tuple[str, list[str]]:
    """Returns the name of the library and its symbols."""
    name = ""
    symbols = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.split("#", 1)[0].strip()
        if text.startswith("library:"):
            name = text.removeprefix("library:").strip()
        elif text and " " not in text:
            symbols.append(text)
        elif text:
            raise ValueError(f"{path}:{number}: expected one symbol, found {text!r}")
    if not name:
        raise ValueError(f"{path}: expected a line 'library: NAME'")
    return name, symbols


def stub_of(name: str, symbols: list[str]) -> str:
    """Returns the text of a stub in the format that Apple's linkers read."""
    listed = ", ".join(f"'{symbol}'" for symbol in sorted(set(symbols)))
    return (
        "--- !tapi-tbd\n"
        "tbd-version: 4\n"
        "targets: [ arm64-macos ]\n"
        f"install-name: '{name}'\n"
        "exports:\n"
        "  - targets: [ arm64-macos ]\n"
        f"    symbols: [ {listed} ]\n"
        "...\n"
    )


def main(source: Path, target: Path) -> None:
    """Writes the stub. Does not touch the file if it already has the same text."""
    text = stub_of(*read_list(source))
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
