"""What the README and docs/ say is so: the settings, the links, and the example."""

import os
import re
import subprocess
import sys
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


def test_the_example_trains(tmp_path: Path):
    pytest.importorskip("torch")
    example = next(
        block
        for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
        if "init_process_group" in block and "import torch\n" in block
    )
    script = tmp_path / "train.py"
    script.write_text(example)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCCL_")}
    environment |= {"OMP_NUM_THREADS": "1", "MCCL_PORT_BASE": "0"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node=2",
            script,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(x) for x in re.findall(r"rank \d: loss ([\d.]+)", done.stdout)]
    assert len(losses) == 2
    # The model can hold the function exactly; at the start the loss is about 10.
    assert max(losses) < 0.5
