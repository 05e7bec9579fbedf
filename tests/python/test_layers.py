"""The structure of the source tree: includes between layers, the length of files, and names."""

import re
import subprocess
from pathlib import Path

import pytest
from layers import (
    CXX,
    LAYERS,
    arrows,
    folders_outside_the_layers,
    sources,
    wrong_includes,
)

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 500
CODE = CXX | {".py", ".sh", ".cmake"}
#: The beginning of a class at namespace scope, where a definition starts a line.
CLASS = re.compile(
    r"^(?:template ?<.*> ?)?(?:class|struct|enum class|union) (?:\w+\([^)]*\) |[A-Z_]+ )*([A-Z]\w+)"
    r"(?: final)?\s*(?::(?!:)[^;]*)?\{",
    re.MULTILINE,
)
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(|\bsetenv\s*\(|\bputenv\s*\(|(?<!/)\benviron\b")


def readers_of_the_environment(root: Path) -> list[str]:
    """Returns the files outside src/base that read or write the environment."""
    return [
        str(path.relative_to(root))
        for layer, path in sources(root)
        if layer != "src/base" and ENVIRONMENT.search(path.read_text())
    ]


def too_long(paths: list[Path]) -> list[str]:
    """Returns the files with more than MOST_LINES lines."""
    return [
        f"{path}: {lines} lines"
        for path in paths
        if (lines := len(path.read_text().splitlines())) > MOST_LINES
    ]


def shared_names(root: Path) -> dict[str, list[str]]:
    """Returns the names of classes that several files define, with these files."""
    files: dict[str, set[str]] = {}
    for folder in ("src", "include", "bindings"):
        for path in (root / folder).rglob("*"):
            if path.suffix in CXX:
                for name in CLASS.findall(path.read_text()):
                    files.setdefault(name, set()).add(str(path.relative_to(root)))
    return {name: sorted(where) for name, where in files.items() if len(where) > 1}


def files_of_the_project() -> list[Path]:
    """Returns all files that git tracks or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return [ROOT / name for name in listed if Path(name).suffix in CODE and (ROOT / name).is_file()]


def test_the_tree_has_sources_to_check():
    assert len(list(sources(ROOT))) > 40


def test_every_layer_has_sources():
    assert [layer for layer in LAYERS if layer not in dict(sources(ROOT))] == []


def test_every_folder_is_a_layer_or_lies_in_one():
    assert folders_outside_the_layers(ROOT) == []


def test_includes_go_one_way():
    assert wrong_includes(ROOT) == []


def test_the_page_lists_the_layers_in_order():
    page = (ROOT / "docs/architecture.md").read_text()
    listed = []
    for folder, contents in re.findall(
        r"^\| `((?:include|src|bindings)[\w/]*)/`[^|]*\| (.+) \|$", page, re.MULTILINE
    ):
        if folder in ("src/rendezvous", "src/engine"):
            listed += [f"{folder}/{name}" for name in re.findall(r"`(\w+)/`", contents)]
        if folder != "src/rendezvous":
            listed.append(folder)
    assert tuple(listed) == LAYERS


def test_only_the_base_layer_touches_the_environment():
    assert readers_of_the_environment(ROOT) == []


def test_files_are_short():
    assert too_long(files_of_the_project()) == []


def test_no_two_classes_share_a_name():
    assert shared_names(ROOT) == {}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A correct source tree of three layers."""
    for name, text in {
        "include/mccl/group.h": "#include <vector>\n",
        "src/base/log.h": '#include "mccl/group.h"\n',
        "src/engine/engine.h": '#include "base/log.h"\n#include "engine/calls/call.h"\n',
        "src/engine/call.h": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_right_tree_passes(tree: Path):
    assert wrong_includes(tree) == []
    assert readers_of_the_environment(tree) == []


def test_arrows_that_follow_from_others_are_left_out(tree: Path):
    (tree / "src/base/clock.h").write_text("")
    (tree / "src/engine/call.h").write_text('#include "mccl/group.h"\n#include "base/clock.h"\n')
    assert arrows(tree) == [("src/base", "include/mccl"), ("src/engine", "src/base")]


@pytest.mark.parametrize("name", ["engine/engine.h", "../engine/engine.h"])
def test_an_include_of_a_later_layer_is_found(tree: Path, name: str):
    (tree / "src/base/log.h").write_text(f'#include "{name}"\n')
    assert len(wrong_includes(tree)) == 1


def test_an_include_of_a_later_folder_of_the_engine_is_found(tree: Path):
    for name, text in {
        "calls/call.h": '#include "engine/links/link.h"\n',
        "links/link.h": "",
    }.items():
        (tree / "src/engine" / name).parent.mkdir()
        (tree / "src/engine" / name).write_text(text)
    assert wrong_includes(tree) == [
        "src/engine/calls/call.h includes engine/links/link.h of the later src/engine/links"
    ]


@pytest.mark.parametrize("folder", ["src/attic", "src/engine/attic"])
def test_a_folder_outside_the_layers_is_found(tree: Path, folder: str):
    assert folders_outside_the_layers(tree) == []
    (tree / folder / "deep").mkdir(parents=True)
    assert folders_outside_the_layers(tree) == []
    (tree / folder / "deep/old.cpp").touch()
    assert folders_outside_the_layers(tree) == [folder]


@pytest.mark.parametrize(
    "call", ['std::getenv("X")', 'secure_getenv ("X")', "extern char** environ;"]
)
def test_a_reader_of_the_environment_is_found(tree: Path, call: str):
    (tree / "src/engine/call.h").write_text(call + ' "/proc/1/environ"')
    assert readers_of_the_environment(tree) == ["src/engine/call.h"]


def test_a_long_file_is_found(tmp_path: Path):
    path = tmp_path / "long.cpp"
    path.write_text("\n" * MOST_LINES)
    assert too_long([path]) == []
    path.write_text("\n" * (MOST_LINES + 1))
    assert len(too_long([path])) == 1


def test_classes_that_share_a_name_are_found(tree: Path):
    (tree / "src/base/a.h").write_text("class Group;\nstruct Link {\n  struct Kind {};\n};\n")
    (tree / "src/engine/b.h").write_text(
        "class Group {};\nstruct Kind {};\nenum class Way { a };\n"
    )
    assert shared_names(tree) == {}
    (tree / "src/engine/c.cpp").write_text(
        "template <class T>\nclass MCCL_API Link final : public Group {\n};\nenum class Way {};\n"
    )
    assert shared_names(tree) == {
        "Link": ["src/base/a.h", "src/engine/c.cpp"],
        "Way": ["src/engine/b.h", "src/engine/c.cpp"],
    }
