"""libmccl exports what include/mccl declares with MCCL_API, and nothing else."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from free_port import free_port
from launching import BUILD, ROOT, environment

INCLUDE = ROOT / "include"
LIBRARY = BUILD / "src/libmccl.so"
# Symbols that the compiler makes for a class, besides its members.
OF_A_CLASS = re.compile(r"^(?:typeinfo|typeinfo name|vtable) for ")
# Namespaces of the public functions.
NAMESPACES = ("mccl", "mccl::rendezvous")
# Hook through which tests of the extensions replace a Mac's GPU by another device.
HOOK = "mccl::device::metal::replace_driver"
STATIC_RUNTIME = ("-static-libstdc++", "-static-libgcc")

CATCHES = """
#include <cstdio>
#include <mccl/mccl.h>

int main() {
  try {
    mccl::Config().set("no such setting", "");
  } catch (const mccl::InvalidArgument&) {
    std::puts("caught");
  }
}
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nm and the linker of Linux")


def run(*command: object, **options: object) -> str:
    """Runs a command that must succeed, and returns its standard output."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def exported(library: Path) -> set[str]:
    """Returns the exported names. C++ names are demangled and lack their arguments.

    Version definitions, which nm lists too, are left out.
    """
    names = set()
    for line in run("nm", "-D", "--defined-only", "--demangle", library).splitlines():
        _, kind, name = line.split(maxsplit=2)
        if kind != "A":
            names.add(re.sub(r"\[abi:\w+\]", "", re.split(r"[(@]", name)[0]))
    return names


def declared(text: str) -> tuple[set[str], set[str]]:
    """Returns the classes and the functions that a header marks with MCCL_API."""
    classes = set(re.findall(r"(?:class|struct) MCCL_API (\w+)", text))
    return classes, set(re.findall(r"MCCL_API [^;{}()]*?\b(\w+)\(", text))


def undeclared(names: set[str], classes: set[str], functions: set[str]) -> list[str]:
    """Returns the names that are none of these classes and functions, nor members of a class."""

    def known(name: str) -> bool:
        place = OF_A_CLASS.sub("", name).split("::")
        if place[0] != "mccl":
            return len(place) == 1 and name.startswith("mccl_") and name in functions
        if place[1] in classes or name == HOOK:
            return True
        return place[-1] in functions and name.rpartition("::")[0] in NAMESPACES

    return sorted(name for name in names if not known(name))


def unmarked(text: str) -> list[str]:
    """Returns functions that a header declares without MCCL_API and does not define.

    A program that calls them cannot be linked.
    """
    function = r"(\w+)\((?:[^{};]|{})*\)(?: const)?(?: noexcept| MCCL_NOEXCEPT)?;"
    no_function = "MCCL_API |typedef |using "
    names = re.findall(rf"^(?!{no_function})\w[^(){{}};=]*?\b{function}", text, re.MULTILINE)
    for body in re.findall(r"^(?:class|struct) (?!MCCL_API)[^;{]*{(.*?)^};", text, re.M | re.S):
        names += re.findall(rf"^  (?:[\w~][^(){{}};=]*?\b)?{function}", body, re.MULTILINE)
    return names


def headers() -> str:
    """Returns the text of all public headers, without comments and macros."""
    text = "\n".join(path.read_text() for path in sorted((INCLUDE / "mccl").glob("*.h")))
    return re.sub(r"//.*|/\*.*?\*/|#define.*", "", text, flags=re.MULTILINE)


def test_everything_exported_is_declared():
    assert undeclared(exported(LIBRARY), *declared(headers())) == []


def test_everything_declared_is_exported():
    classes, functions = declared(headers())
    names = exported(LIBRARY)
    last = {name.split("::")[-1] for name in names}
    assert sorted(functions - last) == []
    # The library needs no symbol of Fence, a class that only programs implement.
    seen = {OF_A_CLASS.sub("", name).split("::")[1] for name in names if "mccl::" in name}
    assert sorted(classes - seen - {"Fence"}) == []


def test_everything_declared_is_marked():
    assert unmarked(headers()) == []


@pytest.mark.parametrize(
    "text",
    [
        "std::string name_of(Codec codec);\n",
        "std::map<int, int>\nname_of(Codec codec,\n        const Options& more = {}) noexcept;\n",
        "mccl_status name_of(mccl_codec codec) MCCL_NOEXCEPT;\n",
        "struct Config {\n  std::string name_of(int name) const;\n};\n",
        "class Config : public Base {\n public:\n  name_of();\n};\n",
    ],
)
def test_a_function_without_the_mark_is_seen(text: str):
    assert unmarked(text) == ["name_of"]


def test_errors_have_one_type_in_the_process():
    errors = re.findall(r"class MCCL_API (\w+)", (INCLUDE / "mccl/error.h").read_text())
    assert len(errors) == 7
    needed = {f"{what} for mccl::{name}" for name in errors for what in ("typeinfo", "vtable")}
    assert sorted(needed - exported(LIBRARY)) == []
    extensions = sorted((BUILD / "bindings").glob("*/*.so"))
    assert extensions
    for extension in extensions:
        assert sorted(needed & exported(extension)) == [], extension


@pytest.mark.parametrize(
    "name",
    [
        "spdlog::logger::log",
        "fmt::v9::vformat",
        "std::vector<mccl::Work, std::allocator<mccl::Work> >::push_back",
        "mccl::Engine::submit",
        "typeinfo for mccl::Engine",
        "mccl::detail::find",
        "mccl::schedule::name_of",
        "zlib_version",
    ],
)
def test_a_stranger_is_seen(name: str):
    assert undeclared({name}, *declared(headers())) == [name]


def linked_with_static_runtime(folder: Path, flags: tuple[str, ...]) -> Path:
    """Links the build folder's objects into a library with its own C++ runtime, and returns it."""
    target = LIBRARY.resolve().relative_to(BUILD.resolve())
    commands = run("ninja", "-C", BUILD, "-t", "commands", target).splitlines()
    (command,) = (line for line in commands if f"-o {target} " in line)
    words = shlex.split(command)
    words = words[words.index("&&") + 1 : -2]  # CMake writes ": && COMMAND && :".
    words[words.index("-o") + 1] = str(folder / "libmccl.so.0")
    run(*words, *flags, cwd=BUILD)
    (folder / "libmccl.so").symlink_to("libmccl.so.0")
    return folder / "libmccl.so.0"


def compiled(source: Path, folder: Path, *flags: str) -> Path:
    """Compiles a program that links the library in `folder`, and returns its path."""
    program = folder / source.stem
    run(
        "c++", "-std=c++20", f"-I{INCLUDE}", source, "-o", program,
        *flags, f"-L{folder}", "-lmccl", f"-Wl,-rpath,{folder}",
    )  # fmt: skip
    return program


@pytest.mark.parametrize(
    "flags", [STATIC_RUNTIME, pytest.param((), marks=pytest.mark.long)], ids=["static", "shared"]
)
def test_a_library_with_its_own_runtime_serves_two_ranks(flags: tuple[str, ...], tmp_path: Path):
    """The library uses its own C++ runtime, whether the program's is static or shared."""
    library = linked_with_static_runtime(tmp_path, STATIC_RUNTIME)
    assert undeclared(exported(library), *declared(headers())) == []
    program = compiled(ROOT / "examples/cpp/all_reduce.cpp", tmp_path, *flags)
    settings = tmp_path / "settings.json"  # the library reads it through a std::ifstream
    settings.write_text('{"timeout": 60}')
    place = {
        "MCCL_CONFIG": str(settings),
        "MCCL_WORLD_SIZE": "2",
        "MCCL_ROOT": f"127.0.0.1:{free_port()}",
        "MCCL_PORT_BASE": "0",
        "MCCL_CONNECT_TIMEOUT": "30",
    }
    ranks = [
        subprocess.Popen(
            [program],
            env=environment(**place, MCCL_RANK=str(rank)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=60)[0] for process in ranks]
    assert said == [f"rank {rank} of 2: sum 3\n" for rank in range(2)]


@pytest.mark.parametrize(
    "flags",
    [pytest.param(("-static-libstdc++",), marks=pytest.mark.long), ()],
    ids=["static", "shared"],
)
def test_an_error_of_such_a_library_is_caught(flags: tuple[str, ...], tmp_path: Path):
    """libgcc stays shared: one unwinder must know the frames of program and library.

    GCC's manual says so.
    """
    linked_with_static_runtime(tmp_path, ("-static-libstdc++",))
    source = tmp_path / "catches.cpp"
    source.write_text(CATCHES)
    assert run(compiled(source, tmp_path, *flags)) == "caught\n"
