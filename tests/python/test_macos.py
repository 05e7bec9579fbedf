"""The parser of programs built for Macs, and the faults that it reports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from macos import macho, pack, stub
from macos.check import faults

ROOT = Path(__file__).parents[2]

HEADERS = """
libmccl.0.dylib:
Mach header
      magic  cputype cpusubtype  caps    filetype ncmds sizeofcmds      flags
MH_MAGIC_64    ARM64        ALL  0x00       DYLIB    17       1464   NOUNDEFS DYLDLINK TWOLEVEL
Load command 3
          cmd LC_ID_DYLIB
      cmdsize 56
         name @rpath/libmccl.0.dylib (offset 24)
Load command 6
          cmd LC_BUILD_VERSION
      cmdsize 32
     platform macos
          sdk 27.0
        minos 14.0
Load command 9
          cmd LC_LOAD_DYLIB
      cmdsize 56
         name /usr/lib/libSystem.B.dylib (offset 24)
Load command 10
          cmd LC_LOAD_DYLIB
      cmdsize 48
         name /usr/lib/libc++.1.dylib (offset 24)
Load command 11
          cmd LC_RPATH
      cmdsize 32
         path @loader_path (offset 12)
Load command 16
      cmd LC_CODE_SIGNATURE
  cmdsize 16
"""

SYMBOLS = """
                 (undefined) external __ZNSt3__15mutex4lockEv (from libc++)
                 (undefined) external _poll (from libSystem)
                 (undefined) weak external __ZdlPv (from libc++)
                 (undefined) external _PyErr_Occurred (dynamically looked up)
0000000000003f40 (__TEXT,__text) external _mccl_version
0000000000004f40 (__DATA,__data) weak external __ZTIN4mccl5ErrorE
0000000000005f40 (__TEXT,__text) non-external _hidden
"""

CPP = "/usr/lib/libc++.1.dylib"


def image() -> macho.Image:
    made = macho.Image(Path("libmccl.0.dylib"))
    macho.read_headers(HEADERS, made)
    macho.read_symbols(SYMBOLS, made)
    return made


def providers() -> dict[str, set[str]]:
    others = {"@rpath/libx.dylib": set(), "/home/me/libx.dylib": set()}
    return {CPP: {"__ZNSt3__15mutex4lockEv", "__ZdlPv"}, **others}


def test_what_the_headers_say():
    made = image()
    assert (made.architecture, made.minimum, made.signed) == ("arm64", "14.0", True)
    assert made.name == "@rpath/libmccl.0.dylib"
    assert made.libraries == ["/usr/lib/libSystem.B.dylib", CPP]
    assert made.searched == ["@loader_path"]


def test_needed_and_provided_symbols_are_read():
    made = image()
    asked = {each.symbol: each for each in made.needed}
    assert asked["_poll"].library == "libSystem"
    assert asked["_PyErr_Occurred"].library == ""
    assert [each.symbol for each in made.needed if each.weak] == ["__ZdlPv"]
    assert made.provided == {"_mccl_version", "__ZTIN4mccl5ErrorE"}


def test_a_file_whose_symbols_are_all_provided_has_no_fault():
    assert faults(image(), "14.0", providers()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda made: setattr(made, "architecture", "x86_64"), "expected arm64"),
        (lambda made: setattr(made, "minimum", "26.0"), "requires macOS 26.0, expected 14.0"),
        (lambda made: setattr(made, "minimum", ""), "of unknown version"),
        (lambda made: setattr(made, "signed", False), "is not signed"),
        (lambda made: made.libraries.append("/opt/libfmt.9.dylib"), "loads /opt/libfmt.9.dylib"),
        (lambda made: made.libraries.remove(CPP), "which it does not load"),
        (
            lambda made: setattr(made, "name", "/home/me/libmccl.dylib"),
            "has the install name /home",
        ),
        (
            lambda made: (made.libraries.append("@rpath/libx.dylib"), made.searched.clear()),
            "loads @rpath/libx.dylib, but has no rpath to find it",
        ),
        (
            lambda made: made.libraries.append("/home/me/libx.dylib"),
            "loads /home/me/libx.dylib, a path on the build machine",
        ),
        (
            lambda made: made.needed.append(macho.Needed("__ZNSt3__13newEv", "libc++")),
            "needs __ZNSt3__13newEv, which /usr/lib/libc++.1.dylib is not known to provide",
        ),
        (
            lambda made: made.needed.append(macho.Needed("_memfd_create", "")),
            "needs _memfd_create from an unspecified library",
        ),
        (lambda made: made.provided.add("__ZTISt9exception"), "contains its own C++ library"),
    ],
)
def test_files_that_no_mac_would_run_are_reported(change, said):
    made = image()
    change(made)
    found = faults(made, "14.0", providers())
    assert any(said in fault for fault in found), found


def test_a_stub_names_its_library_and_every_symbol():
    name, symbols = stub.read_list(ROOT / "cmake" / "macos" / "libc++.symbols")
    assert name == CPP
    assert len(symbols) == len(set(symbols)) > 100
    text = stub.stub_of(name, symbols)
    assert f"install-name: '{CPP}'" in text
    assert "'__ZSt9terminatev'" in text


def test_a_list_with_two_symbols_in_a_line_is_refused(tmp_path):
    path = tmp_path / "list"
    path.write_text("library: /usr/lib/libx.dylib\n_a _b\n")
    with pytest.raises(ValueError, match=r":2: expected one symbol, found '_a _b'"):
        stub.read_list(path)


def test_a_wheel_for_macs_has_the_licences_of_what_it_contains(tmp_path: Path):
    build = tmp_path / "build"
    (build / "src/cli").mkdir(parents=True)
    (build / "src/cli/mccl").touch()
    (build / "cmake_install.cmake").touch()  # Installs nothing.
    (tmp_path / "version.py").write_text("__version__ = '2.11.0'\n")
    described = pack.metadata([tmp_path], [])
    pack.lay_out(build, described, ("cp311", "macosx_14_0_arm64"), tmp_path / "wheel")
    (information,) = (tmp_path / "wheel").glob("*.dist-info")
    licences = {path.name for path in (information / "licenses").iterdir()}
    assert licences == {"LICENSE", "THIRD_PARTY_LICENSES"}


#: At most this many files compile within the two minutes that the test may take.
MOST_STEPS = 40


def steps_to_do(build: Path) -> int:
    """Returns how many steps of the library's and the program's build remain."""
    said = subprocess.run(
        ["cmake", "--build", build, "--target", "mccl", "mccl_program", "--", "-n"],
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    totals = re.findall(r"^\[\d+/(\d+)\]", said, re.MULTILINE)
    return max((int(total) for total in totals), default=0)


def test_the_library_and_the_program_link_for_macs():
    """Runs the first part of `make macos`, if its tools are present."""
    folder = Path("build") / "macos"
    build = ROOT / folder / "release"
    if not (build / "src" / "cli" / "mccl").exists():
        pytest.skip("nothing was built for macOS here yet: make macos does")
    if (steps := steps_to_do(build)) > MOST_STEPS:
        pytest.skip(f"{steps} files would have to be compiled for macOS: make macos does")
    built = subprocess.run(
        [ROOT / "scripts" / "macos" / "build.sh", folder, "2", sys.executable, "core"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if built.returncode == 3:
        pytest.skip(built.stdout.strip().splitlines()[-1])
    assert built.returncode == 0, built.stdout
    for name in ("libmccl.0.dylib", "mccl"):
        assert f"macos: {name}: arm64, macOS 14.0 and newer, signed;" in built.stdout
