"""Pinned packages, hardened binaries, and the bill of materials."""

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sbom
from launching import BUILD, ROOT, program

SCRIPTS = ROOT / "scripts"
LOCKS = [SCRIPTS / f"requirements{part}.lock" for part in ("", "-test")]
REQUIREMENT = re.compile(r"^(?P<name>[\w-]+)(?:==(?P<version>[\w.]+))?")


def required(path: Path) -> list[tuple[str, str | None]]:
    """Returns the packages that a requirements file names, with a version where it gives one."""
    found = []
    for line in path.read_text().splitlines():
        if line.startswith("-r "):
            found += required(path.parent / line[3:].strip())
        elif match := REQUIREMENT.match(line.partition("#")[0].strip()):
            found.append((match["name"].lower().replace("_", "-"), match["version"]))
    return found


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_pins_all_that_is_required_and_names_no_index(path):
    found = sbom.pinned(path)
    hashes = sum(match["hashes"].count("--hash=sha256:") for match in found)
    assert hashes == path.read_text().count("--hash=sha256:") > 0
    versions = {match["name"]: match["version"] for match in found}
    torch = re.search(r"^DEFAULT_TORCH := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for package, version in [*required(path.with_suffix(".txt")), ("torch", torch[1])]:
        assert package in versions, f"{package} is not in {path.name}: run `make lock`"
        assert version in (None, versions[package]), f"{package} {version}: run `make lock`"
    assert "://" not in path.read_text() and "--index-url" not in path.read_text()


def test_a_package_with_another_hash_is_not_installed(tmp_path):
    """pip refuses a file that is not the one in the lock. Needs no network."""
    wheel = tmp_path / "pinned-1-py3-none-any.whl"
    wheel.write_bytes(b"PK\x05\x06" + bytes(18))  # an empty archive
    requirement = tmp_path / "pinned.lock"
    requirement.write_text(f"pinned==1 --hash=sha256:{'0' * 64}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", tmp_path,
         "--disable-pip-version-check", "--dry-run", "--require-hashes", "-r", requirement],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


#: The instruction at which an indirect branch may arrive (-fcf-protection).
ENDBR64 = bytes.fromhex("f30f1efa")


def readelf(*arguments: object) -> str:
    done = subprocess.run(
        ["readelf", "--wide", *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return done.stdout


def hardened_files() -> list[Path]:
    """Returns the library, the program, and the extensions that were built."""
    extensions = [*BUILD.glob("bindings/**/*.so"), *(ROOT / "python").glob("**/*.so")]
    return [BUILD / "src/libmccl.so", program(), *extensions]


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")
def test_the_built_files_are_hardened():
    for path in hardened_files():
        segments, dynamic = readelf("--segments", path), readelf("--dynamic", path)
        assert "GNU_RELRO" in segments, path
        assert re.search(r"\(FLAGS(_1)?\).*\b(BIND_NOW|NOW)\b", dynamic), f"{path}: no BIND_NOW"
        assert not re.search(r"GNU_STACK\s.*\bRWE\b", segments), f"{path}: executable stack"
        assert "Type:                              DYN" in readelf("--file-header", path), path
        symbols = readelf("--dyn-syms", path)
        assert "__stack_chk_fail" in symbols, f"{path}: no stack protector"
        if path.name in {"libmccl.so", program().name}:
            assert re.search(r"__\w+_chk\b", symbols), f"{path}: no fortify"
        if platform.machine() == "x86_64":
            # The files lack the note of indirect-branch tracking where the system's start files do.
            landings = path.read_bytes().count(ENDBR64)
            assert landings > 100, f"{path}: {landings} marks of indirect-branch tracking"


@pytest.mark.skipif(sys.platform != "linux", reason="reads a build for Linux")
def test_every_source_is_compiled_with_the_options():
    """A hardened file shows only that some source had the options. The build files list each."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    measures = f"{ROOT}/bench/"  # Benchmarks, like tests, are not installed.
    sources = [
        each
        for each in commands
        if "/tests/" not in each["file"] and not each["file"].startswith(measures)
    ]
    assert sources
    for each in sources:
        if each["file"].endswith((".cu", ".metal", ".mm")):
            continue
        for option in ("-fstack-protector-strong", "-D_FORTIFY_SOURCE=3"):
            assert option in each["command"], each["file"]
        if platform.machine() == "x86_64":
            assert "-fcf-protection=full" in each["command"], each["file"]


def test_the_bill_lists_what_is_compiled_in_what_is_loaded_and_what_is_installed(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPTS / "sbom.py", BUILD / "src/libmccl.so", *LOCKS],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    names = {each["name"] for each in bill["components"]}
    assert {"fmt", "spdlog", "highway", "nanobind", "torch", "numpy"} <= names
    assert any(name.startswith("libcrypto") for name in names)
    licences = (ROOT / "THIRD_PARTY_LICENSES").read_text().lower()
    for name, _, _ in sbom.BUNDLED:
        assert name.lower() in licences, f"{name} has no licence in THIRD_PARTY_LICENSES"
