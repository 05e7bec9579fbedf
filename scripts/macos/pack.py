"""Packs a wheel for Macs from cross-compiled files.

    pack.py --build BUILD --torch FOLDER... --mlx FOLDER --minimum 14.0 --into FOLDER

BUILD is a CMake build folder. The wheel contains its install component `python`, the program, and
the Python files. The FOLDERs are those of the torch and MLX for which the extensions were compiled.
The last line of output is the wheel's path. The linker has already signed programs and libraries,
so they stay unchanged.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from scikit_build_core._vendor.pyproject_metadata import StandardMetadata

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))

import frameworks  # noqa: E402


def metadata(torch: list[Path], mlx: list[Path]) -> StandardMetadata:
    """Returns the metadata of the distribution for pip."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    project["dynamic"] = []
    release = frameworks.release_of(ROOT / "CMakeLists.txt")
    project["version"] = f"{release}+{frameworks.local_version({'torch': torch, 'mlx': mlx})}"
    return StandardMetadata.from_pyproject(pyproject, ROOT)


def platform_tag(minimum: str) -> str:
    """Returns the platform tag of wheels for the oldest macOS, such as macosx_14_0_arm64."""
    return f"macosx_{minimum.replace('.', '_')}_arm64"


def python_tag() -> str:
    """Returns the tag of the Python that runs this program and the extensions, such as cp311."""
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def license_files() -> list[str]:
    """Returns the files with the licences of what the wheel contains."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return pyproject["tool"]["scikit-build"]["wheel"]["license-files"]


def lay_out(build: Path, described: StandardMetadata, tags: tuple[str, str], target: Path) -> None:
    """Copies all files of the wheel to `target`, except the list of files (RECORD)."""
    subprocess.run(
        ["cmake", "--install", build, "--component", "python", "--prefix", target],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for package in ("mccl", "mccl_engine"):
        shutil.copytree(
            ROOT / "python" / package,
            target / package,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    stem = f"{described.name.replace('-', '_')}-{described.version}"
    programs = target / f"{stem}.data" / "scripts"
    programs.mkdir(parents=True)
    shutil.copy2(build / "src" / "cli" / "mccl", programs / "mccl")
    information = target / f"{stem}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(str(described.as_rfc822()))
    (information / "WHEEL").write_text(
        "Wheel-Version: 1.0\nGenerator: mccl\nRoot-Is-Purelib: false\n"
        f"Tag: {tags[0]}-{tags[0]}-{tags[1]}\n"
    )
    entries = []
    for group, names in described.entrypoints.items():
        entries.append(f"[{group}]")
        entries += [f"{name} = {what}" for name, what in names.items()]
    (information / "entry_points.txt").write_text("\n".join(entries) + "\n")
    licenses = information / "licenses"
    licenses.mkdir()
    for name in license_files():
        shutil.copy2(ROOT / name, licenses / name)


def main(arguments: Sequence[str]) -> None:
    """Packs the wheel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--torch", type=Path, nargs="+", required=True)
    parser.add_argument("--mlx", type=Path, nargs="+", required=True)
    parser.add_argument("--minimum", required=True)
    parser.add_argument("--into", type=Path, required=True)
    given = parser.parse_args(arguments)

    described = metadata(given.torch, given.mlx)
    tags = (python_tag(), platform_tag(given.minimum))
    given.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        content = Path(folder) / "wheel"
        content.mkdir()
        lay_out(given.build.resolve(), described, tags, content)
        subprocess.run(
            [sys.executable, "-m", "wheel", "pack", content, "--dest-dir", folder],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (made,) = Path(folder).glob("*.whl")
        print(shutil.copy2(made, given.into))


if __name__ == "__main__":
    main(sys.argv[1:])
