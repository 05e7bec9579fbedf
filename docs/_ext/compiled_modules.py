"""Stand-ins for the compiled modules of the Python package, so that autodoc needs no build.

`mccl._distributed` has its signatures from _distributed.pyi. Its docstrings and the default values
of arguments are from the sources of the binding. Tests compare the signatures and docstrings with
the compiled module.
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


def defaults() -> dict[str, object]:
    """The default of each argument that has one; equal in all functions."""
    words = {"none": None, "nb::none()": None, "true": True, "false": False}
    found: dict[str, object] = {}
    for path in sorted(BINDING.glob("*.cpp")):
        for name, value in re.findall(
            r'(?:nb::arg\()?"(\w+)"(?:_a|\)) = ([\w:]+(?:\(\))?|"\w+")', path.read_text()
        ):
            default = words[value] if value in words else ast.literal_eval(value)
            if found.setdefault(name, default) != default:
                raise ValueError(f"{name} has the defaults {found[name]} and {default}")
    return found


def with_defaults(function: ast.FunctionDef, values: dict[str, object]) -> None:
    """Replaces each `...` of the stub by the default of that argument."""
    arguments = function.args
    positional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    arguments.defaults = [ast.Constant(values[each.arg]) for each in positional]
    arguments.kw_defaults = [
        default and ast.Constant(values[each.arg])
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]


def first_overloads(body: list[ast.stmt], values: dict[str, object]) -> list[ast.stmt]:
    """The statements, with one function of each name and without its decorator `overload`.

    `values` are the defaults of arguments.
    """
    kept: list[ast.stmt] = []
    seen: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            statement.body = first_overloads(statement.body, values)
        elif isinstance(statement, ast.FunctionDef):
            if statement.name in seen:
                continue
            seen.add(statement.name)
            with_defaults(statement, values)
            statement.decorator_list = [
                each for each in statement.decorator_list if ast.unparse(each) != "overload"
            ]
        kept.append(statement)
    return kept


def distributed_module() -> types.ModuleType:
    """`mccl._distributed`, of which nothing can be called."""
    tree = ast.parse("from __future__ import annotations\n" + STUB.read_text())
    tree.body = first_overloads(tree.body, defaults())
    module = types.ModuleType("mccl._distributed")
    sys.modules[module.__name__] = module
    exec(compile(ast.fix_missing_locations(tree), str(STUB), "exec"), module.__dict__)
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
