#!/usr/bin/env python3
"""Checks the wording of comments, docstrings and documents, as CONTRIBUTING.md asks for.

    prose.py [PATH...]            lists what breaks a rule, and exits with 1 if anything does
    prose.py --list [PATH...]     lists every comment and docstring
    prose.py --sample N [PATH...] lists N of them, drawn with --seed

PATH is a file or a folder; the default is the whole project. A comment may not open with a word
that makes it a fragment, such as "Of" or "What". Sentences of documents, also in tables, have at
most 35 words. No text has a word that the glossary marks as wrong.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "src",
    "include",
    "bindings",
    "python",
    "tests",
    "bench",
    "scripts",
    "examples",
    "cmake",
    "docs",
)
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "CMakeLists.txt")
C_LIKE = (".cpp", ".h", ".c", ".cu", ".mm")
HASHED = (".sh", ".cmake", "CMakeLists.txt", "Makefile")

#: Words that no comment opens with.
NEVER = {"of", "what", "who", "whoever", "whose", "whom", "that"}
#: Words that a comment opens with only in these phrases.
PHRASES = {
    "by": ("by default", "by contract", "by definition", "by design", "by hand"),
    "as": ("as in", "as of", "as a result", "as long as", "as soon as", "as a"),
    "for": (
        "for each",
        "for every",
        "for example",
        "for instance",
        "for all",
        "for now",
        "for tests",
        "for a",
    ),
}
LONGEST_SENTENCE = 35
#: The glossary: wrong words and spellings, and the word to use. Code between backticks is exempt.
GLOSSARY = {
    r"allreduce|all reduce": "all-reduce, or all_reduce for the call",
    r"allgather|all gather": "all-gather, or all_gather for the call",
    r"reduce scatter": "reduce-scatter, or reduce_scatter for the call",
    r"all to all|alltoall": "all-to-all, or all_to_all for the call",
    r"host[- ]files?": "hostfile",
    r"back[- ]ends?": "backend",
    r"time-outs?": "timeout",
    r"heart[- ]beats?": "heartbeat",
    r"hand-shakes?": "handshake",
    r"loop-back": "loopback",
    r"end[- ]points?": "endpoint",
    r"sub-groups?": "subgroup",
    r"thread safe|threadsafe": "thread-safe",
    r"bit-wise": "bitwise",
    r"rendez-vous|rendez vous": "rendezvous",
    r"filesystems?": "file system",
    r"canceled|canceling": "cancelled, cancelling",
    r"neighbors?|neighboring": "neighbour",
    r"behaviors?": "behaviour",
    r"(?:initial|recogn|serial|synchron|optim|normal|organ)iz(?:e|es|ed|ing|ation)": "-ise",
    r"utili[sz](?:e|es|ed|ing)": "use",
    r"whoever|whomever": "the name of the rank, thread or user",
    r"nobody|somebody": "the name of the rank, thread or user",
    r"now and then|but for|(?:is|are) told of": "a plain phrase",
    r"e\.g\.|i\.e\.|etc\.": "for example, that is, and so on",
}
WRONG = re.compile(
    "|".join(rf"(?<![\w/])(?:{pattern})(?![\w(-])" for pattern in GLOSSARY), re.IGNORECASE
)


@dataclass(frozen=True)
class Text:
    """A comment, a docstring, or a paragraph of a document."""

    path: Path
    line: int
    words: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}: {self.words}"


def comments_of_c(path: Path, source: str) -> Iterator[Text]:
    """Yields each comment; consecutive lines that contain only a `//` comment are one."""
    token = re.compile(
        r'R"(?P<mark>[^(\s]*)\((?:.|\n)*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'
        r"(?<![0-9A-Za-z])'(?:\\.|[^'\\\n])+'|(?P<block>/\*(?:.|\n)*?\*/)|//(?P<line>[^\n]*)"
    )
    begun, words, last = 0, [], -1
    for match in token.finditer(source):
        if match["block"] is None and match["line"] is None:
            continue
        line = source.count("\n", 0, match.start()) + 1
        alone = not source[source.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        if match["line"] is not None and alone and line == last + 1:
            words.append(match["line"])
            last = line
            continue
        if words:
            yield Text(path, begun, tidy(words))
        if match["block"] is not None:
            yield Text(path, line, tidy(match["block"].strip("/*").splitlines()))
            words, last = [], -1
        else:
            begun, words = line, [match["line"]]
            last = line if alone else -1
    if words:
        yield Text(path, begun, tidy(words))


def comments_of_python(path: Path, source: str) -> Iterator[Text]:
    """Yields each docstring, and comments as in comments_of_c()."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield Text(path, node.body[0].lineno, tidy(text.splitlines()))
    comments = [
        (found.start[0], found.string.lstrip("#:!"), not found.line[: found.start[1]].strip())
        for found in tokenize.generate_tokens(io.StringIO(source).readline)
        if found.type == tokenize.COMMENT
    ]
    yield from blocks(path, comments)


def comments_with_hash(path: Path, source: str) -> Iterator[Text]:
    """Yields comments on lines of their own; a `#` after code may be part of the code."""
    lines = [
        (number, line.strip().lstrip("#"), True)
        for number, line in enumerate(source.splitlines(), 1)
        if re.match(r"\s*#(?!!)", line)
    ]
    yield from blocks(path, lines)


def blocks(path: Path, comments: list[tuple[int, str, bool]]) -> Iterator[Text]:
    """Joins comments on lines that follow each other; each is (line, words, stands alone)."""
    begun, words, last = 0, [], -1
    for line, text, alone in comments:
        if words and alone and line == last + 1:
            words.append(text)
        else:
            if words:
                yield Text(path, begun, tidy(words))
            begun, words = line, [text]
        last = line if alone else -1
    if words:
        yield Text(path, begun, tidy(words))


def paragraphs(path: Path, source: str) -> Iterator[Text]:
    """Yields each paragraph, list item, heading and cell of a table of a document, without code."""
    source = re.sub(r"(?ms)^ *```.*?^ *```", lambda code: "\n" * code[0].count("\n"), source)
    begun, words = 0, []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        new_item = re.match(r"\s*([-*+]|\d+\.)\s|#|\s*\|", line)
        if (not line.strip() or new_item) and words:
            yield Text(path, begun, tidy(words))
            words = []
        if line.lstrip().startswith("|"):
            cells = [tidy([cell]) for cell in re.split(r"(?<!\\)\||<br>", line)]
            yield from (Text(path, number, cell) for cell in cells if re.search(r"\w", cell))
        elif line.strip():
            begun = begun if words else number
            words.append(re.sub(r"^\s*([-*+]|\d+\.|#+)\s+", "", line))


def tidy(lines: list[str]) -> str:
    """Joins lines without the comment marks at their beginnings."""
    return " ".join(" ".join(re.sub(r"^[\s/*!<]+", "", line) for line in lines).split())


def texts(path: Path) -> Iterator[Text]:
    """Yields the texts of a file, by its kind."""
    source = path.read_text(encoding="utf-8")
    if path.suffix in C_LIKE:
        yield from comments_of_c(path, source)
    elif path.suffix == ".py":
        yield from comments_of_python(path, source)
    elif path.suffix == ".md":
        yield from paragraphs(path, source)
    else:
        yield from comments_with_hash(path, source)


def files(given: list[str]) -> list[Path]:
    """Returns the files to read below the given paths, or of the whole project."""
    roots = [Path(path).resolve() for path in given] or [ROOT / name for name in FOLDERS + FILES]
    found = []
    for root in roots:
        within = sorted(root.rglob("*")) if root.is_dir() else [root]
        found += [path for path in within if path.is_file() and is_read(path)]
    return found


def is_read(path: Path) -> bool:
    """True for file types whose comments this program can read."""
    return path.suffix in (*C_LIKE, ".py", ".md") or path.suffix in HASHED or path.name in HASHED


def is_prose(text: Text) -> bool:
    """False for directives of tools, and for comments at the ends of namespaces."""
    return bool(text.words) and not re.match(
        r"namespace\b|NOLINT|clang-format|noqa|fmt:", text.words
    )


def faults(text: Text) -> Iterator[str]:
    """Yields which rules the text breaks."""
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text.words))
    for wrong in WRONG.finditer(plain):
        right = next(word for pattern, word in GLOSSARY.items() if matches(pattern, wrong[0]))
        yield f'has "{wrong[0]}", which the glossary replaces by: {right}'
    opening = " ".join(re.findall(r"[\w']+", text.words.lower())[:3])
    first = opening.partition(" ")[0]
    if text.path.suffix != ".md":
        if first in NEVER:
            yield f'opens with "{first.capitalize()}"'
        allowed = PHRASES.get(first)
        if allowed and not any((opening + " ").startswith(phrase + " ") for phrase in allowed):
            yield f'opens with "{first.capitalize()}", but not as one of: {", ".join(allowed)}'
        return
    for sentence in re.split(r"(?<=[.!?;])\s+", plain):
        if (count := len(sentence.split())) > LONGEST_SENTENCE:
            yield f"has a sentence of {count} words, at most {LONGEST_SENTENCE}"


def matches(pattern: str, word: str) -> bool:
    """True if the word is wrong by this pattern of the glossary."""
    return re.fullmatch(pattern, word, re.IGNORECASE) is not None


def main() -> int:
    """Runs the command line. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list every comment and docstring")
    parser.add_argument("--sample", type=int, metavar="N", help="list N of them, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    given = parser.parse_args()
    found = [text for path in files(given.paths) for text in texts(path) if is_prose(text)]
    if given.list or given.sample:
        count = min(given.sample or len(found), len(found))
        for text in random.Random(given.seed).sample(found, count) if given.sample else found:
            print(text)
        return 0
    broken = [(text, fault) for text in found for fault in faults(text)]
    for text, fault in broken:
        print(f"{text}\n    {fault}")
    print(f"prose: {len(found)} texts, {len(broken)} break a rule", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
