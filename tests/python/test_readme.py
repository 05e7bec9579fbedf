"""The README and docs/ are correct about settings, links, files and variables."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_the_table_of_settings_is_the_one_in_force():
    from mccl.config import settings_markdown

    text = README.read_text()
    table = text.split("<!-- settings:begin -->\n")[1].split("<!-- settings:end -->")[0]
    assert table == settings_markdown(), "run scripts/settings_table.py README.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path):
    named = re.findall(
        r"`((?:src|include|tests|examples|scripts|cmake|bench|docs)/[\w./-]+)`", page.read_text()
    )
    for name in named:
        assert (ROOT / name).exists(), name


def test_variables_that_are_named_are_settings():
    from mccl.config import settings_markdown

    known = set(re.findall(r"MCCL_[A-Z_]+", settings_markdown()))
    cmake = [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")]
    build_options = set(re.findall(r"MCCL_[A-Z_]+", "".join(f.read_text() for f in cmake)))
    headers = [ROOT / "include/mccl" / name for name in ("c.h", "c_calls.h")]
    constants = set(re.findall(r"\bMCCL_[A-Z0-9_]+", "".join(h.read_text() for h in headers)))
    for page in PAGES:
        named = set(re.findall(r"\bMCCL_[A-Z0-9_]*[A-Z0-9]", page.read_text()))
        assert named <= known | build_options | constants, page.name
