"""The table of bounds in docs/security.md: each row names a constant and a test that exist."""

import re

import pytest
from launching import ROOT

ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<limit>[^|]+) \| (?P<constants>`[^|]+) \| `(?P<test>\w+\.\w+)` \|$"
)


def rows() -> list[re.Match]:
    section = (
        (ROOT / "docs/security.md").read_text().partition("\n## Bounds\n")[2].partition("\n## ")[0]
    )
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [match for line in lines if (match := ROW.match(line))]


def text_of(folder: str) -> str:
    paths = (ROOT / folder).rglob("*")
    return "\n".join(p.read_text() for p in paths if p.suffix in {".cpp", ".h"})


def test_the_tables_have_a_row_for_each_bound():
    section = (
        (ROOT / "docs/security.md").read_text().partition("\n## Bounds\n")[2].partition("\n## ")[0]
    )
    lines = [line for line in section.splitlines() if line.startswith("|")]
    heads_and_rules = 4
    assert len(rows()) == len(lines) - heads_and_rules
    assert len(rows()) > 20


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["what"])
def test_a_row_names_a_constant_and_a_test(row):
    source, tests = text_of("src"), text_of("tests")
    for constant in re.findall(r"`(\w+)`", row["constants"]):
        assert re.search(rf"\b{constant}\b", source), f"{constant} is in no source"
    suite, name = row["test"].split(".")
    assert re.search(rf"TEST(_F|_P)?\(\s*{suite},\s*{name}\)", tests), f"no test {row['test']}"
