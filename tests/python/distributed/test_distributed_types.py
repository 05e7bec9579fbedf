"""The stub matches the compiled module, and every call is documented."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import mccl.distributed as dist
from mccl import _distributed

PACKAGE = Path(__file__).resolve().parents[3] / "python" / "mccl"
STUB = ast.parse((PACKAGE / "_distributed.pyi").read_text())


def stubbed(owner: ast.AST) -> dict[str, ast.FunctionDef]:
    """Returns the functions that a part of the stub declares.

    Overloads have the same arguments, so only one is kept.
    """
    return {node.name: node for node in ast.iter_child_nodes(owner) if is_function(node)}


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef)


def stubbed_classes() -> dict[str, ast.ClassDef]:
    return {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def names_of(declared: ast.FunctionDef) -> tuple[list[str], list[str]]:
    """Returns the positional and the keyword-only arguments of a function in the stub."""
    keywords = [a.arg for a in declared.args.kwonlyargs]
    if declared.args.kwarg:  # **options: Unpack[…]
        keywords += keys_of(stubbed_classes()[declared.args.kwarg.annotation.slice.id])
    return [a.arg for a in declared.args.args], keywords


def keys_of(dictionary: ast.ClassDef) -> list[str]:
    """Returns the keys of a TypedDict of the stub: its own, then those of its bases."""
    own = [node.target.id for node in dictionary.body if isinstance(node, ast.AnnAssign)]
    known = stubbed_classes()
    return own + [
        k for base in dictionary.bases if base.id in known for k in keys_of(known[base.id])
    ]


def names_in_module(function) -> tuple[list[str], list[str]]:
    """Returns the same for a compiled function, from the first line of its help."""
    line = function.__doc__.splitlines()[0]
    listed = re.sub(r" = ('[^']*'|\w+)", "", line[line.index("(") + 1 : line.rindex(") ->")])
    names = [re.split(r"[:=]", part.strip())[0] for part in split_outside_brackets(listed)]
    positional, _, keywords = "\n".join(names).partition("*")
    return positional.split(), keywords.split()


def split_outside_brackets(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


@pytest.mark.parametrize("kind", [dist.Group, dist.Work])
def test_the_stub_has_every_member(kind):
    declared = {n for n in stubbed(stubbed_classes()[kind.__name__]) if not n.startswith("__")}
    assert declared == {name for name in vars(kind) if not name.startswith("__")}


@pytest.mark.parametrize("kind", [dist.Group, dist.Work])
def test_the_stub_has_the_arguments(kind):
    for name, declared in stubbed(stubbed_classes()[kind.__name__]).items():
        member = getattr(kind, name)
        if not name.startswith("__") and not isinstance(member, property):
            assert names_in_module(member) == names_of(declared), name


def test_the_stub_has_the_functions_of_the_module():
    declared = stubbed(STUB)
    assert set(declared) == {
        name
        for name, value in vars(_distributed).items()
        if not inspect.isclass(value) and not name.startswith("__")
    }


@pytest.mark.parametrize("kind", [dist.Group, dist.Work])
def test_every_call_is_documented(kind):
    for name, member in vars(kind).items():
        if not name.startswith("_"):
            assert len((member.__doc__ or "").split()) > 3, name
    for argument in ("out:", "wait:", "timeout:", "op:"):
        assert argument in dist.Group.__doc__


def test_exported_names_exist():
    assert all(hasattr(dist, name) for name in dist.__all__)
    assert (PACKAGE / "py.typed").exists()
