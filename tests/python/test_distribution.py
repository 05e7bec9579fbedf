"""Detection of a wrong MCCL distribution, the advice that errors give, and `python -m mccl`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mccl
import mccl_engine

ROOT = Path(__file__).resolve().parents[2]


def python(*arguments: object, before: Path | None = None, **environment: str):
    """Runs Python outside the source tree. Packages in `before` take precedence."""
    seen = dict(os.environ) | environment
    if before is not None:
        seen["PYTHONPATH"] = os.pathsep.join([str(before), seen.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-P", *map(str, arguments)],
        env=seen,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder in which a distribution named mccl appears to be installed."""
    (tmp_path / "mccl-6.8.0.dist-info").mkdir()
    return tmp_path


def test_beside_the_other_distribution_the_import_is_an_error_with_a_cure(other: Path):
    done = python("-c", "import mccl", before=other)
    assert done.returncode == 1
    assert f"mccl 6.8.0 in {other}" in done.stderr
    assert "uninstall --yes mccl mccl-engine && " in done.stderr
    assert "install --force-reinstall --no-deps " in done.stderr


@pytest.mark.parametrize("name", ["mccl.egg-link", "mccl-6.8.0-py3.11.egg-info"])
def test_older_ways_to_install_are_seen_too(tmp_path: Path, name: str):
    (tmp_path / name).touch()
    assert python("-c", "import mccl", before=tmp_path).returncode == 1


@pytest.mark.parametrize("name", ["mccl_engine-1.dist-info", "mccl_tools-1.dist-info", "mccl"])
def test_other_names_do_not_matter(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    assert python("-c", "import mccl_engine as e; e.require_alone()", before=tmp_path).stderr == ""


def test_where_the_other_one_shadows_this_one_torch_goes_on_and_mccl_does_not(other: Path):
    pytest.importorskip("torch")
    (other / "mccl").mkdir()
    (other / "mccl" / "__init__.py").write_text("print('the other one')\n")
    code = """
import mccl_engine
mccl_engine.autoload()
import torch
print("torch is there")
import mccl
"""
    done = python("-c", code, before=other, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 1
    assert done.stdout == "torch is there\n"
    assert "UserWarning: two installed distributions both contain" in done.stderr
    assert "ImportError: two installed distributions both contain" in done.stderr


@pytest.mark.parametrize("missing", [pytest.param("torch", marks=pytest.mark.long), "mlx"])
def test_the_error_for_a_missing_extension_names_the_command(missing: str):
    pytest.importorskip({"torch": "torch", "mlx": "mlx.core"}[missing])
    use = {
        "torch": "import torch.distributed as d; "
        "d.init_process_group('mccl', store=d.HashStore(), rank=0, world_size=1)",
        "mlx": "import mccl.mlx",
    }[missing]
    code = f"import mccl._built_for as build; build.{missing.upper()} = []; {use}"
    done = python("-c", code)
    assert done.returncode == 1
    assert mccl_engine.install_command() in done.stderr
    assert "without its" in done.stderr


@pytest.mark.parametrize("editable", [True, False])
def test_the_command_names_the_folder_that_was_installed(tmp_path: Path, editable: bool):
    source = tmp_path / "a source"
    source.mkdir()
    (source / "pyproject.toml").touch()
    info = tmp_path / "mccl_engine-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mccl-engine\nVersion: 0\n")
    url = source.as_uri()
    says = "true" if editable else "false"
    (info / "direct_url.json").write_text(f'{{"url": "{url}", "dir_info": {{"editable": {says}}}}}')
    done = python("-c", "import mccl_engine as e; print(e.install_command())", before=tmp_path)
    option = "--editable " if editable else ""
    assert done.stdout.endswith(f" --no-deps {option}'{source}'\n")
    (source / "pyproject.toml").unlink()
    done = python("-c", "import mccl_engine as e; print(e.install_command())", before=tmp_path)
    assert "SOURCE is the folder of MCCL's sources" in done.stdout


def test_no_text_advises_to_install_the_other_distribution():
    listed = subprocess.run(
        ["git", "grep", "-InE", r"(pip|uv) install [^|]*\bmccl(\[|\b[^-_/.])"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert [line for line in listed.stdout.splitlines() if not line.startswith(here)] == []


def test_python_m_mccl_is_the_program():
    done = python("-m", "mccl", "--version")
    assert (done.returncode, done.stdout) == (0, f"mccl {mccl.__version__}\n"), done.stderr
    assert python("-m", "mccl", "no-such-command").returncode == 2
