#!/usr/bin/env python3
"""Prints the table of settings in Markdown, or replaces it in a file.

settings_table.py              prints the table
settings_table.py docs/settings.md    rewrites the text between the file's settings markers
"""

from __future__ import annotations

import sys
from pathlib import Path

from mccl.config import settings_markdown

BEGIN = "<!-- settings:begin -->\n"
END = "<!-- settings:end -->"


def renewed(text: str, table: str) -> str:
    """Returns `text` with `table` between its markers. Raises ValueError without one pair."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"expected one line {BEGIN.strip()} and one {END}")
    before, rest = text.split(BEGIN)
    if END not in rest:
        raise ValueError(f"expected {BEGIN.strip()} before {END}")
    return before + BEGIN + table + END + rest.split(END)[1]


def main() -> int:
    """Runs the command line."""
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    if len(sys.argv) == 1:
        print(settings_markdown(), end="")
        return 0
    path = Path(sys.argv[1])
    try:
        path.write_text(renewed(path.read_text(), settings_markdown()))
    except (OSError, ValueError) as error:
        print(f"settings_table.py: {path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
