#!/usr/bin/env python3
"""Prints the binary interface of the C header and of the library, one fact a line.

c_abi.py LIBRARY [--include FOLDER]

The facts are the exported symbols with their versions, the functions with their types, the values
of enums and macros, and the sizes and offsets of structs, as a C compiler sees them.
tests/c_api/abi.txt holds the promised interface:

    scripts/c_abi.py build/release/src/libmccl.so > tests/c_api/abi.txt
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ("mccl/c.h", "mccl/c_calls.h")
# Macros for the compiler, which have no value.
NO_VALUES = {"MCCL_C_H", "MCCL_C_CALLS_H", "MCCL_NOEXCEPT", "MCCL_API"}


def text_of_headers(include: Path) -> str:
    """Returns the text of all headers, without comments."""
    text = "\n".join((include / name).read_text() for name in HEADERS)
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def in_one_line(text: str) -> str:
    """Replaces line breaks and repeated blanks by single blanks."""
    return re.sub(r"\s*\*\s*", "* ", " ".join(text.split())).replace("* *", "**").strip()


def functions(text: str) -> list[str]:
    """Lists every function with its types, but without argument names, which may change."""
    found = []
    for result, name, arguments in re.findall(
        r"MCCL_API\s+([\w\s*]+?)\s*(mccl_\w+)\(([^)]*)\)\s*MCCL_NOEXCEPT;", text
    ):
        types = [
            in_one_line(re.sub(r"(?<=[\s*])\w+\s*$", "", argument)) if argument != "void" else ""
            for argument in arguments.split(",")
        ]
        found.append(f"function {name} ({', '.join(types)}) -> {in_one_line(result)}")
    return sorted(found)


def names_of_functions(text: str) -> list[str]:
    """Lists the functions that the header declares."""
    return sorted(re.findall(r"MCCL_API[^;]*?\b(mccl_\w+)\(", text))


def values(text: str) -> list[str]:
    """Lists the names of constants."""
    enums = re.findall(r"enum\s*\{(.*?)\}", text, re.DOTALL)
    constants = [name for enum in enums for name in re.findall(r"\b(MCCL_\w+)\s*=", enum)]
    macros = set(re.findall(r"^#define\s+(MCCL_\w+)", text, re.MULTILINE)) - NO_VALUES
    return constants + sorted(macros)


def structs(text: str) -> dict[str, list[str]]:
    """Returns the structs that have a definition, with their fields in order."""
    found = {}
    for name, body in re.findall(r"typedef struct (mccl_\w+)\s*\{(.*?)\}", text, re.DOTALL):
        found[name] = re.findall(r"(\w+)\s*;", body)
    return found


def types(text: str) -> list[str]:
    """Lists the typedefs of numbers, and of callbacks as they are declared."""
    numbers = re.findall(r"typedef\s+\w+\s+(mccl_\w+);", text)
    callbacks = re.findall(r"typedef\s+(\w+\s*\(\*mccl_\w+\)\([^)]*\));", text)
    return sorted(numbers) + [in_one_line(callback) for callback in sorted(callbacks)]


def probe(text: str) -> str:
    """Returns a C program that prints facts that only the compiler knows."""
    lines = ["#include <stdio.h>", "#include <stddef.h>", '#include "mccl/c.h"', "int main(void) {"]
    for name in types(text):
        if "(" in name:
            lines.append(f'puts("callback {name}");')
        else:
            lines.append(
                f'printf("type {name} size %zu, %s\\n", sizeof({name}), '
                f'({name})-1 < 0 ? "signed" : "unsigned");'
            )
    for name in values(text):
        lines.append(f'printf("value {name} %lld\\n", (long long)({name}));')
    for name, fields in structs(text).items():
        lines.append(f'printf("struct {name} size %zu\\n", sizeof({name}));')
        for field in fields:
            lines.append(
                f'printf("field {name}.{field} offset %zu, size %zu\\n", '
                f"offsetof({name}, {field}), sizeof((({name}*)0)->{field}));"
            )
    return "\n".join([*lines, "return 0;", "}"])


def compiled(text: str, include: Path) -> list[str]:
    """Compiles and runs the probe, and returns its output."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "probe.c", Path(folder) / "probe"
        source.write_text(probe(text))
        command = [os.environ.get("CC", "cc"), "-std=c99", f"-I{include}", source, "-o", program]
        subprocess.run(command, check=True)
        done = subprocess.run([program], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def symbols(library: Path) -> list[str]:
    """Lists the symbols with C names that the library exports, with their versions."""
    done = subprocess.run(
        ["nm", "-D", "--defined-only", "--with-symbol-versions", library],
        check=True,
        capture_output=True,
        text=True,
    )
    found = [line.split(maxsplit=2)[1:] for line in done.stdout.splitlines()]
    # nm lists versions as symbols of kind `A`; C++ names begin with _Z.
    return sorted(f"symbol {name}" for kind, name in found if kind != "A" and name[:2] != "_Z")


def binary_interface(library: Path, include: Path = ROOT / "include") -> list[str]:
    """Returns all facts, one per entry."""
    text = text_of_headers(include)
    return [*symbols(library), *functions(text), *compiled(text, include)]


def main() -> None:
    """Prints all facts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--include", type=Path, default=ROOT / "include")
    options = parser.parse_args()
    sys.stdout.write("\n".join(binary_interface(options.library, options.include)) + "\n")


if __name__ == "__main__":
    main()
