"""Checks on the tests themselves: they can fail, and each fault they guard against has a test."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
ENDS = {"os._exit", "sys.exit", "exit", "quit"}
# Names that a test needs only if it builds or parses messages itself instead of calling the
# library.
WIRE = {"to_bytes", "from_bytes", "sendall", "sendmsg", "recv_into", "recvmsg"}


def calls_of_a_module(tree: ast.AST) -> list[ast.AST]:
    """Returns the calls and raises outside functions and classes, which run on import."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call | ast.Raise):
            found.append(node)
        found += calls_of_a_module(node)
    return found


def ends_its_process(text: str) -> bool:
    """Returns whether a module ends its process on import, which hides the results of its tests."""
    for node in calls_of_a_module(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ENDS:
            return True
        if isinstance(node, ast.Raise) and node.exc and "SystemExit" in ast.unparse(node.exc):
            return True
    return False


def builds_messages(text: str) -> bool:
    """Returns whether a module packs or parses bytes of a protocol itself."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import) and any(name.name == "struct" for name in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "struct":
            return True
        if isinstance(node, ast.Attribute) and node.attr in WIRE:
            return True
    return False


def python_files() -> list[Path]:
    files = sorted(TESTS.rglob("*.py"))
    assert len(files) > 20
    return files


def test_fault_36_no_test_file_ends_its_process():
    assert [str(p) for p in python_files() if ends_its_process(p.read_text())] == []


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(0)",
        "sys.exit(0)",
        "exit()",
        "raise SystemExit(0)",
        'if __name__ == "__main__":\n    sys.exit(0)',
        "try:\n    run()\nfinally:\n    os._exit(0)",
    ],
)
def test_fault_36_a_file_that_ends_its_process_is_found(end: str):
    assert ends_its_process(f"def test_it():\n    assert False\n\n\n{end}\n")
    assert not ends_its_process("def child():\n    os._exit(0)\n\n\nclass A:\n    x = 1\n")


def test_fault_37_no_python_test_has_a_wire_protocol_of_its_own():
    assert [str(p) for p in python_files() if builds_messages(p.read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        "import struct",
        "from struct import pack",
        "header = (24).to_bytes(4, 'little')",
        "connection.sendall(header)",
    ],
)
def test_fault_37_a_protocol_of_its_own_is_found(text: str):
    assert builds_messages(text)


def test_every_fault_of_the_table_has_its_tests():
    """tests/faults.md names tests of each fault; those in Python have its number."""
    rows = re.findall(r"^\| (\d+) \|.*\| (.+) \|$", (ROOT / "tests/faults.md").read_text(), re.M)
    assert len(rows) > 25
    written = "".join(p.read_text() for p in TESTS.rglob("*") if p.suffix in (".py", ".cpp"))
    for number, tests in rows:
        names = re.findall(r"`([\w.]+)`", tests)
        assert names, f"fault {number} has no test"
        for name in names:
            suite, _, test = name.rpartition(".")
            declared = f"({suite}, {test})" if suite else f"def {test}("
            assert declared in written, f"fault {number}: there is no {name}"
            assert suite or re.match(rf"test_fault_0*{number}(?!\d)", test), name


def test_the_files_that_begin_first_are_there():
    tree = ast.parse((TESTS / "conftest.py").read_text())
    assignments = [node for node in tree.body if isinstance(node, ast.Assign)]
    [names] = [node.value for node in assignments if node.targets[0].id == "LONGEST"]
    longest = ast.literal_eval(names)
    assert len(longest) > 10
    assert set(longest) <= {path.name for path in python_files()}
