"""The wording of comments, docstrings and documents; the rules are those of scripts/prose.py."""

from pathlib import Path

import pytest
from prose import Text, faults, files, is_prose, texts


def comments(tmp_path: Path, name: str, source: str) -> list[tuple[int, str]]:
    path = tmp_path / name
    path.write_text(source)
    return [(text.line, text.words) for text in texts(path)]


def test_comments_of_cxx_are_found(tmp_path: Path):
    source = """// One comment on
// two lines.
int x = 1;  // A trailing one.
// Another.
const char* s = "// no comment"; char c = '"';
/* A block
 * of two. */
auto r = R"x(// no comment either)x"; int big = 1'000;  ///< A member.
"""
    assert comments(tmp_path, "a.cpp", source) == [
        (1, "One comment on two lines."),
        (3, "A trailing one."),
        (4, "Another."),
        (6, "A block of two."),
        (8, "A member."),
    ]


def test_comments_and_docstrings_of_python_are_found(tmp_path: Path):
    source = '"""A module."""\nx = "# none"  # One.\n\n\ndef f():\n    """Does f."""\n'
    source += "    # Two\n    # lines.\n"
    found = comments(tmp_path, "a.py", source)
    assert sorted(found) == [(1, "A module."), (2, "One."), (6, "Does f."), (7, "Two lines.")]


def test_paragraphs_of_documents_are_found(tmp_path: Path):
    source = "# Head\n\nA line\ngoes on.\n- One.\n- Two.\n\n```sh\n# no text\n```\n| a | table |\n"
    words = [words for _, words in comments(tmp_path, "a.md", source)]
    assert words == ["Head", "A line goes on.", "One.", "Two.", "a", "table"]


@pytest.mark.parametrize(
    ("name", "words", "fault"),
    [
        ("a.h", "Of a call: its rank.", 'opens with "Of"'),
        ("a.h", "What comes.", 'opens with "What"'),
        ("a.py", "Whoever waits.", 'opens with "Whoever"'),
        ("a.h", "For the caller.", 'opens with "For"'),
        ("a.h", "As named.", 'opens with "As"'),
        ("a.md", "Word " * 36, "a sentence of 36 words"),
        ("a.md", "Word: " * 36, "a sentence of 36 words"),
        ("a.h", "Starts an allreduce.", '"allreduce", which the glossary replaces by: all-reduce'),
        ("a.md", "The Host-file", '"Host-file", which the glossary replaces by: hostfile'),
        ("a.py", "It is initialized.", '"initialized", which the glossary replaces by: -ise'),
        ("a.md", "Nobody waits, etc.", '"etc.", which the glossary'),
        ("a.h", "Calls allreduce() and `allreduce`; see /etc.", ""),
        ("a.h", "The back end's timeout", '"back end"'),
        ("a.h", "By default, 3.", ""),
        ("a.h", "For each rank: its node.", ""),
        ("a.h", "Offset in bytes.", ""),
        ("a.md", "Word " * 35, ""),
        ("a.md", "What to do", ""),
    ],
)
def test_rules(name: str, words: str, fault: str):
    found = "; ".join(faults(Text(Path(name), 1, words)))
    assert (fault in found) if fault else not found


def test_the_project_follows_them():
    broken = [
        f"{text}: {fault}"
        for path in files([])
        for text in texts(path)
        if is_prose(text)
        for fault in faults(text)
    ]
    assert not broken, "\n".join(broken)
