"""Stand-ins for the compiled modules of the Python package, so that autodoc needs no build.

`mccl._distributed` has its signatures from _distributed.pyi and its docstrings from the sources of
the binding. Tests compare both with the compiled module.
"""

from __future__ import annotations

import ast
import re
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "python/mccl/_distributed.pyi"
BINDING = ROOT / "bindings/numpy"


LITERALS = r'(?:"(?:[^"\\]|\\.)*"\s*)+'


def text_of(literals: str) -> str:
    """Adjacent C++ literals as one text."""
    return "".join(ast.literal_eval(each) for each in re.findall(r'"(?:[^"\\]|\\.)*"', literals))


def docstrings() -> dict[str, str]:
    """The docstrings of the binding, by the name of what they describe."""
    found: dict[str, str] = {}
    for path in sorted(BINDING.glob("*.cpp")):
        text = path.read_text()
        constants = dict(
            re.findall(r'constexpr const char\* (k\w+) =\s*R"\((.*?)\)";', text, re.DOTALL)
        )
        for chunk in re.split(r"(?=\.def(?:_prop_ro)?\(|nb::class_<)", text):
            head = re.match(r'(?:\.def\w*\(|nb::class_<\w+>\(module, )"(\w+)"', chunk)
            tail = re.search(rf"(?:\b(k[A-Z]\w+)|({LITERALS}))\)\s*;?\s*$", chunk)
            if head and tail:
                name, constant = head[1], tail[1]
                found.setdefault(
                    name, constants.get(constant, "") if constant else text_of(tail[2])
                )
    return found


def first_overloads(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements, with one function of each name and without its decorator `overload`."""
    kept: list[ast.stmt] = []
    seen: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            statement.body = first_overloads(statement.body)
        elif isinstance(statement, ast.FunctionDef):
            if statement.name in seen:
                continue
            seen.add(statement.name)
            statement.decorator_list = [
                each for each in statement.decorator_list if ast.unparse(each) != "overload"
            ]
        kept.append(statement)
    return kept


def distributed_module() -> types.ModuleType:
    """`mccl._distributed`, of which nothing can be called."""
    tree = ast.parse("from __future__ import annotations\n" + STUB.read_text())
    tree.body = first_overloads(tree.body)
    module = types.ModuleType("mccl._distributed")
    sys.modules[module.__name__] = module
    exec(compile(tree, str(STUB), "exec"), module.__dict__)
    texts = docstrings()
    for owner in (module.Group, module.Work):
        owner.__module__ = "mccl.distributed"
        # Titles of sections have no commas.
        owner.__doc__ = texts.get(owner.__name__, "").replace(
            ", all subclasses of mccl.distributed.Error", ""
        )
        for name, member in vars(owner).items():
            target = member.fget if isinstance(member, property) else member
            if name in texts and isinstance(target, types.FunctionType):
                target.__doc__ = texts[name]
                if isinstance(member, property):
                    setattr(owner, name, property(target))
    return module


def core_module() -> types.ModuleType:
    """`mccl._core`, without settings; the page of the settings has those."""
    module = types.ModuleType("mccl._core")
    module.__dict__.update(settings=list, __getattr__=lambda name: type(name, (), {}))
    sys.modules[module.__name__] = module
    return module


def mlx_loader() -> types.ModuleType:
    """`mccl.mlx.loader`, which finds every version right."""
    module = types.ModuleType("mccl.mlx.loader")
    module.__dict__.update(load=lambda: None, __getattr__=lambda name: type(name, (), {}))
    sys.modules[module.__name__] = module
    return module
