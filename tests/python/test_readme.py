"""The README and docs/ are correct: settings, links, files, and every code block.

Blocks run in the order of their page, in a folder of their own. Those that cannot run here are
marked, as in "```sh no-run", and are only parsed.
"""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from launching import PATIENCE, environment, program

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^( *)```(\w+)((?: [^\n]*)?)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
#: test_readme_example.py runs it.
RUNS_ELSEWHERE = "train.py"
LANGUAGES = {"c", "cmake", "cpp", "json", "mermaid", "python", "sh", "text", "yaml"}
#: Programs that parse a file without running it, and the text around the block in the file.
PARSERS = {
    "cmake": (("cmake", "-P"), "if(FALSE)\n%s\nendif()\n"),
    "sh": (("bash", "-n"), "%s"),
}
#: Makes a program of a fragment of C or C++.
AROUND = {
    "c": "#include <mccl/c.h>\n#include <stdio.h>\nint main(void) {\n%s\n}\n",
    "cpp": '#include <vector>\n#include "mccl/mccl.h"\nint main() {\n%s\n}\n',
}


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    language: str
    words: tuple[str, ...]
    text: str

    @property
    def runs(self) -> bool:
        return "no-run" not in self.words

    @property
    def file(self) -> str | None:
        """The file that the block is, after `file=`, or in a first line such as "# train.py"."""
        named = [word.removeprefix("file=") for word in self.words if word.startswith("file=")]
        first = re.match(r"# (\w+\.py)\n", self.text)
        return named[0] if named else first[1] if first and self.language == "python" else None


def blocks_of(page: Path) -> Iterator[Block]:
    for indent, language, words, text in FENCE.findall(page.read_text()):
        yield Block(language, tuple(words.split()), re.sub(f"^{indent}", "", text, flags=re.M))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors_of(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub and MyST make them."""
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_table_of_settings_is_the_one_in_force():
    from mccl.config import settings_markdown

    text = (ROOT / "docs/settings.md").read_text()
    table = text.split("<!-- settings:begin -->\n")[1].split("<!-- settings:end -->")[0]
    assert table == settings_markdown(), "run scripts/settings_table.py docs/settings.md"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)]+)\)", FENCE.sub("", page.read_text())):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            there = page.parent / name if name else page
            assert there.exists(), target
            if anchor and not name.startswith("api/"):
                assert anchor in anchors_of(there), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
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


# --- code blocks


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_blocks_are_well_formed(page: Path, tmp_path: Path):
    for block in blocks_of(page):
        assert block.language in LANGUAGES, block.language
        if block.language == "python":
            ast.parse(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            list(pytest.importorskip("yaml").safe_load_all(block.text))
        elif block.language in PARSERS:
            command, around = PARSERS[block.language]
            source = tmp_path / "block"
            source.write_text(around % block.text)
            done = subprocess.run([*command, source], capture_output=True, text=True, check=False)
            assert done.returncode == 0, block.text + done.stderr


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_blocks_of_c_and_cpp_compile(language: str, tmp_path: Path):
    compiler, standard = {"c": ("cc", "-std=c99"), "cpp": ("c++", "-std=c++20")}[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    sources = []
    for number, block in enumerate(
        b for p in PAGES for b in blocks_of(p) if b.language == language
    ):
        whole = block.text if "int main" in block.text else AROUND[language] % block.text
        sources.append(tmp_path / f"{number}.{language}")
        sources[-1].write_text(whole)
    assert sources
    command = [compiler, standard, "-fsyntax-only", f"-I{ROOT / 'include'}", *map(str, sources)]
    subprocess.run(command, check=True)


#: Pages whose code blocks run in make test-long only. Other tests train models with compression.
LONG_PAGES = {"docs/compression.md"}


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.runs and block.language in ("python", "sh")]


def run(command: list[str], folder: Path) -> None:
    paths = f"{program().parent}{os.pathsep}{Path(sys.executable).parent}"
    settings = {"OMP_NUM_THREADS": "1", "MCCL_PORT_BASE": "0", "MCCL_LOG_LEVEL": "WARN"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(PATH=f"{paths}{os.pathsep}{os.environ['PATH']}", **settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, " ".join(command) + "\n" + done.stdout


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.long if name_of(page) in LONG_PAGES else ())
        for page in PAGES
        if runnable(page)
    ],
    ids=name_of,
)
def test_code_blocks_run(page: Path, tmp_path: Path):
    for module in ("torch", "mlx"):
        needed = any(
            re.search(rf"^import {module}\b", block.text, re.M) for block in runnable(page)
        )
        if needed and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    for block in blocks_of(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text)
    shell = [block.text for block in runnable(page) if block.language == "sh"]
    for text in shell:
        run(["bash", "-euo", "pipefail", "-c", text], tmp_path)
    for block in runnable(page):
        if block.file not in (None, RUNS_ELSEWHERE) and not any(
            block.file in text for text in shell
        ):
            run(
                [str(program()), "launch", "-n", "2", "--python", sys.executable, block.file],
                tmp_path,
            )
    # All other Python blocks of a page form one program, which runs as a single rank.
    pieces = [b.text for b in runnable(page) if b.language == "python" and b.file is None]
    if pieces:
        (tmp_path / "pieces.py").write_text("\n\n".join(pieces))
        place = ["env", "MCCL_RANK=0", "MCCL_WORLD_SIZE=1", "MCCL_ROOT=127.0.0.1:0"]
        run([*place, sys.executable, "pieces.py"], tmp_path)
