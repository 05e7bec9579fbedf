"""The C interface stays compatible with existing programs; tests/c_api/abi.txt records it."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching import BUILD, ROOT

PROMISE = ROOT / "tests/c_api/abi.txt"
INCLUDE = ROOT / "include"
LIBRARY = BUILD / "src/libmccl.so"
MAY_GROW = re.compile(r"value MCCL_C_VERSION |struct \w+ size ")
HOW = f"""
What is gone or different breaks programs that are built already: bring it back, or give the new
thing a new name. If something was added, and is meant to be:
  1. raise MCCL_C_VERSION in include/mccl/c.h;
  2. give the new functions a version of their own in src/c_api/symbols.map;
  3. scripts/c_abi.py {LIBRARY} > {PROMISE}
"""


def load_script():
    """Loads scripts/c_abi.py as a module."""
    spec = importlib.util.spec_from_file_location("c_abi", ROOT / "scripts/c_abi.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


c_abi = load_script()


def differences(found: list[str], promised: list[str]) -> tuple[list[str], list[str]]:
    """Returns the promised lines that are missing or different, and the lines that are new."""
    new = [line for line in found if line not in promised]
    broken = [line for line in promised if line not in found and not MAY_GROW.match(line)]
    return broken, new


@pytest.mark.skipif(sys.maxsize < 2**32, reason="the sizes are those of 64 bits")
def test_the_binary_interface_is_as_promised():
    found = c_abi.binary_interface(LIBRARY)
    broken, new = differences(found, PROMISE.read_text().splitlines())
    told = ["gone or different:", *broken, "", "new:", *new, HOW]
    assert not broken and not new, "\n".join(told)


def test_exactly_the_declared_functions_are_exported():
    exported = [
        line.split()[1].split("@")[0]
        for line in c_abi.symbols(LIBRARY)
        if not line.split()[1].startswith("_")
    ]
    assert sorted(exported) == c_abi.names_of_functions(c_abi.text_of_headers(INCLUDE))


def test_every_function_and_value_is_in_the_tests_in_c():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests/c_api").glob("*.c"))
    text = c_abi.text_of_headers(INCLUDE)
    named = set(re.findall(r"\bmccl_\w+", tests))
    assert set(c_abi.names_of_functions(text)) <= named


@pytest.mark.parametrize("header", ["mccl/c.h", "mccl/c_calls.h"])
@pytest.mark.parametrize("language", ["c99", "c11", "c++11", "c++20"])
def test_the_header_is_strict_c_and_cpp(header: str, language: str, tmp_path: Path):
    cpp = language.startswith("c++")
    source = tmp_path / ("only.cpp" if cpp else "only.c")
    source.write_text(f"#include <{header}>\nint main(void) {{ return (int)mccl_c_version(); }}\n")
    compiler = shutil.which("c++" if cpp else "cc")
    assert compiler is not None
    subprocess.run(
        [compiler, f"-std={language}", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only",
         f"-I{INCLUDE}", source],
        check=True,
    )  # fmt: skip


# Changes to the header: old text, new text, and how the line that must be reported begins.
CHANGES = {
    "a field in the middle": ("  int32_t size;", "  int32_t more;\n  int32_t size;", "field"),
    "a wider type": ("typedef int32_t mccl_dtype;", "typedef int64_t mccl_dtype;", "type"),
    "another number": ("MCCL_F32 = 11", "MCCL_F32 = 42", "value MCCL_F32 11"),
    "another argument": ("mccl_context_rank(const", "mccl_context_rank(int x, const", "function"),
    "a function gone": ("mccl_store_memory(", "mccl_store_in_memory(", "function"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_break_is_seen(change: str, tmp_path: Path):
    old, new, said = CHANGES[change]
    shutil.copytree(INCLUDE / "mccl", tmp_path / "mccl")
    header = tmp_path / "mccl/c.h"
    assert old in header.read_text()
    header.write_text(header.read_text().replace(old, new))
    broken, _ = differences(
        c_abi.binary_interface(LIBRARY, tmp_path), c_abi.binary_interface(LIBRARY)
    )
    assert any(line.startswith(said) for line in broken), broken


def test_additions_at_the_end_are_compatible(tmp_path: Path):
    shutil.copytree(INCLUDE / "mccl", tmp_path / "mccl")
    header = tmp_path / "mccl/c.h"
    text = header.read_text().replace(
        "} mccl_context_options;", "  int x;\n} mccl_context_options;"
    )
    header.write_text(text.replace("MCCL_C_VERSION 2", "MCCL_C_VERSION 3"))
    broken, new = differences(
        c_abi.binary_interface(LIBRARY, tmp_path), c_abi.binary_interface(LIBRARY)
    )
    assert broken == []
    assert "field mccl_context_options.x offset 32, size 4" in new
