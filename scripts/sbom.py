#!/usr/bin/env python3
"""Writes a software bill of materials in the form of CycloneDX 1.5.

sbom.py LIBRARY LOCK...    prints the bill for the built libmccl: the code compiled into it, the
                           shared libraries that it needs, and the Python packages of the locks
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

#: Code of other projects that is compiled into the library, the program or the extensions: the
#: name, the Debian or Python package that has its version, and the licence (THIRD_PARTY_LICENSES).
BUNDLED = (
    ("fmt", "libfmt-dev", "MIT"),
    ("spdlog", "libspdlog-dev", "MIT"),
    ("nlohmann-json", "nlohmann-json3-dev", "MIT"),
    ("CLI11", "libcli11-dev", "BSD-3-Clause"),
    ("highway", "libhwy-dev", "Apache-2.0"),
    ("nanobind", "nanobind", "BSD-3-Clause"),
)
PINNED = re.compile(
    r"(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; [^\\]+?)?"
    r"(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)"
)


def output_of(*command: str) -> str:
    """Returns the output of a command, or an empty text if it fails or is not installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def debian_version(package: str) -> str:
    """Returns the version of an installed Debian package; empty if it is not installed."""
    return output_of("dpkg-query", "--show", "--showformat=${Version}", package)


def component(name: str, version: str, licence: str = "", **more: Any) -> dict[str, Any]:
    """Returns one entry of the bill."""
    entry: dict[str, Any] = {"type": "library", "name": name, "version": version or "unknown"}
    if licence:
        entry["licenses"] = [{"license": {"id": licence}}]
    return entry | more


def pinned(lock: Path) -> list[re.Match[str]]:
    """Returns the packages of a lock file. Raises ValueError if a line has another form."""
    lines = re.sub(r" \\\n +", " ", lock.read_text()).splitlines()
    found = {line: PINNED.fullmatch(line) for line in lines if not line.startswith("#")}
    for line, match in found.items():
        if not match:
            raise ValueError(f"{lock}: expected name==version and hashes, found: {line}")
    return [match for match in found.values() if match]


def python_packages(lock: Path) -> list[dict[str, Any]]:
    """Returns an entry for each package of a lock file, with the digests of all its files."""
    return [
        component(
            match["name"],
            match["version"],
            purl=f"pkg:pypi/{match['name']}@{match['version']}",
            hashes=[
                {"alg": "SHA-256", "content": each.rpartition(":")[2]}
                for each in match["hashes"].split()
            ],
        )
        for match in pinned(lock)
    ]


def bundled(packages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns an entry for each project whose code is compiled in."""
    versions = {package["name"]: package["version"] for package in packages}
    return [
        component(name, versions.get(source, "") or debian_version(source), licence)
        for name, source, licence in BUNDLED
    ]


def shared_libraries(library: Path) -> list[dict[str, Any]]:
    """Returns an entry for each shared library that the dynamic linker loads with the library."""
    entries = []
    for line in output_of("ldd", str(library)).splitlines():
        name, _, rest = line.strip().partition(" => ")
        path = rest.partition(" (")[0]
        if not path.startswith("/"):
            continue
        # Debian may list the file under /lib or /usr/lib, which are one folder.
        owner = output_of("dpkg", "-S", path) or output_of("dpkg", "-S", f"/usr{path}")
        package = owner.partition(":")[0]
        entries.append(component(name, debian_version(package), scope="required"))
    return entries


def main() -> int:
    """Runs the command line."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    packages: dict[str, dict[str, Any]] = {}
    for lock in sys.argv[2:]:
        packages |= {package["name"]: package for package in python_packages(Path(lock))}
    version = re.search(r"project\(mccl VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    python = list(packages.values())
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component("mccl", version[1] if version else "", "MIT")},
        "components": bundled(python) + shared_libraries(Path(sys.argv[1])) + python,
    }
    print(json.dumps(bill, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
