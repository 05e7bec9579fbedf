"""The tables of requirements name tests that exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
TABLES = sorted((TESTS / "requirements").glob("*.md"))


def rows_of(table: Path) -> list[list[str]]:
    lines = [line for line in table.read_text().splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def exists(test: str) -> bool:
    file, _, name = test.partition("::")
    path = TESTS / file
    if not path.is_file():
        return False
    suite, _, case = name.partition(".")
    pattern = (
        rf"^\s*def {re.escape(name)}\("
        if path.suffix == ".py"
        else rf"^TEST(_F|_P)?\({re.escape(suite)}, {re.escape(case)}\)"
    )
    return re.search(pattern, path.read_text(), re.MULTILINE) is not None


@functools.cache
def all_tests() -> set[str]:
    """Returns the names of all tests: functions in Python, Suite.Case in C++."""
    found: set[str] = set()
    for path in TESTS.rglob("*.py"):
        found.update(re.findall(r"^\s*def (test_\w+)\(", path.read_text(), re.MULTILINE))
    for path in TESTS.rglob("*.cpp"):
        tests = re.findall(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text())
        found.update(f"{suite}.{case}" for suite, case in tests)
    return found


def is_named(test: str) -> bool:
    """Returns whether any file has this test. Used where a table names a test without its file."""
    return test in all_tests()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_rows_are_numbered_and_whole(table: Path):
    rows = rows_of(table)
    assert [row[0] for row in rows] == [str(number) for number in range(1, len(rows) + 1)]
    assert all(len(row) == 4 and all(row) for row in rows)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_named_test_exists(table: Path):
    for number, _, tests, _ in rows_of(table):
        named = re.findall(r"`([^`]*::[^`]*)`", tests)
        assert named or tests == "none" or "`" in tests, number
        names = re.findall(r"`(test_\w+|[A-Z]\w+\.[A-Z]\w+)`", tests)
        named += [name for name in names if not name.endswith(".")]
        missing = [test for test in named if not (exists(test) if "::" in test else is_named(test))]
        assert not missing, (number, missing)


def test_a_test_that_is_missing_is_noticed():
    assert exists("python/test_requirements.py::test_a_test_that_is_missing_is_noticed")
    assert not exists("python/test_requirements.py::test_of_nothing")
    assert is_named("test_a_test_that_is_missing_is_noticed")
    assert not is_named("test_of_nothing_at_all")
    assert not exists("python/test_nowhere.py::test_of_nothing")
    assert exists("cli/launch_hosts_test.cpp::LaunchHostfile.ReadsBothFormsOfMlx")
    assert not exists("cli/launch_hosts_test.cpp::LaunchHostfile.Both")
