#!/usr/bin/env python3
"""Prepares a release, tags it, or prints the notes of one.

usage: release.py prepare VERSION DATE   sets the version everywhere, and dates the changelogs
       release.py tag                    tags the last commit with the version and its notes
       release.py notes VERSION          prints the changelog's section of that version
       release.py version                prints the version, or fails if two files differ

It makes no commit: review the changes of `prepare`, commit them, then run `release.py tag`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date as day
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Files that hold the version, and the pattern of the text before it.
PLACES = {
    "CMakeLists.txt": r"project\(mccl VERSION ",
    "python/mccl/__init__.py": r'^__version__ = "',
    "bindings/rust/Cargo.toml": r'^version = "',
    "packaging/conda/meta.yaml": r'{% set version = "',
    "packaging/homebrew/mccl.rb": r"archive/v",
}
NUMBER = r"\d+\.\d+\.\d+"


def found(root: Path) -> dict[str, str]:
    """Returns the version that each file has."""
    versions = {}
    for name, before in PLACES.items():
        match = re.search(f"{before}({NUMBER})", (root / name).read_text(), re.MULTILINE)
        if match is None:
            raise SystemExit(f"{name}: there is no version after {before!r}")
        versions[name] = match[1]
    return versions


def version(root: Path) -> str:
    """Returns the version. Fails if two files have different versions."""
    versions = found(root)
    if len(set(versions.values())) != 1:
        raise SystemExit(f"the files have different versions: {versions}")
    return next(iter(versions.values()))


def prepare(root: Path, new: str, date: str) -> None:
    """Sets the version everywhere, and turns "Unreleased" into a dated section."""
    if not re.fullmatch(NUMBER, new) or not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise SystemExit(
            f"{new} {date}: expected a version such as 0.2.0 and a date such as 2030-01-31"
        )
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text()
    if f"## [{new}]" in text or "## [Unreleased]\n" not in text:
        raise SystemExit(f"CHANGELOG.md: [{new}] exists already, or [Unreleased] is missing")
    found(root)
    for name, before in PLACES.items():
        file = root / name
        pattern = f"({before}){NUMBER}"
        file.write_text(
            re.sub(pattern, rf"\g<1>{new}", file.read_text(), count=1, flags=re.MULTILINE)
        )
    heading = f"## [Unreleased]\n\n## [{new}] - {date}\n"
    changelog.write_text(text.replace("## [Unreleased]\n", heading, 1))
    debian = root / "debian/changelog"
    text = debian.read_text()
    if not text.startswith(f"mccl ({new})"):
        when = day.fromisoformat(date).strftime("%a, %d %b %Y 12:00:00 +0000")
        debian.write_text(
            f"mccl ({new}) unstable; urgency=medium\n\n"
            f"  * Release {new}; CHANGELOG.md lists the changes.\n\n"
            f" -- The MCCL authors <mccl@example.org>  {when}\n\n{text}"
        )


def tag(root: Path) -> str:
    """Tags the last commit with the version, and returns the tag. Its message is the notes."""
    found = version(root)
    git = ["git", "-C", str(root)]
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, check=True)
    if changed.stdout:
        raise SystemExit("there are changes without a commit: commit them, then run this again")
    text = f"MCCL {found}\n\n{notes(root, found)}\n"
    command = [*git, "tag", "--annotate", "--cleanup=verbatim", "--file=-", f"v{found}"]
    subprocess.run(command, input=text, text=True, check=True)
    return f"v{found}"


def notes(root: Path, wanted: str) -> str:
    """Returns the changelog's section of a version."""
    text = (root / "CHANGELOG.md").read_text()
    section = re.search(rf"^## \[{re.escape(wanted)}\].*?\n(.*?)(?=^## \[|\Z)", text, re.M | re.S)
    if section is None:
        raise SystemExit(f"CHANGELOG.md has no section [{wanted}]")
    return section[1].strip()


def main(arguments: list[str]) -> int:
    """Runs one command."""
    match arguments:
        case ["prepare", new, date]:
            prepare(ROOT, new, date)
        case ["tag"]:
            print(tag(ROOT))
        case ["notes", wanted]:
            print(notes(ROOT, wanted))
        case ["version"]:
            print(version(ROOT))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
