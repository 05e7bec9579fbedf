"""The versions of torch and MLX for which a build has extensions, and the choice between them."""

import sys
import types
from pathlib import Path

import pytest
from environments import ROOT, run

from mccl import extensions


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like that of scripts/fetch_frameworks.sh, with two versions of torch and one MLX."""
    for torch in ("2.11.0", "2.15.0"):
        folder = tmp_path / f"torch-{torch}/torch"
        folder.mkdir(parents=True)
        (folder / "version.py").write_text(f"__version__ = '{torch}+cu130'\n")
    header = tmp_path / "mlx-0.32.4/mlx/include/mlx/version.h"
    header.parent.mkdir(parents=True)
    parts = zip(("MAJOR", "MINOR", "PATCH"), (0, 32, 4), strict=True)
    header.write_text("".join(f"#define MLX_VERSION_{name} {part}\n" for name, part in parts))
    monkeypatch.setenv("MCCL_FRAMEWORKS", str(tmp_path))
    monkeypatch.syspath_prepend(ROOT / "cmake")
    sys.modules.pop("frameworks", None)
    return tmp_path


def test_a_build_is_for_all_that_was_fetched(fetched: Path):
    import frameworks

    found = frameworks.folders()
    assert found == {
        "torch": [fetched / "torch-2.11.0/torch", fetched / "torch-2.15.0/torch"],
        "mlx": [fetched / "mlx-0.32.4/mlx"],
    }
    assert frameworks.local_version(found) == "torch2.11.torch2.15.mlx0.32.4"
    # A package index refuses versions with a local part.
    settings = {"input": str(ROOT / "CMakeLists.txt")}
    version = frameworks.dynamic_metadata("version", settings)
    assert version == frameworks.release_of(ROOT / "CMakeLists.txt")


def test_an_empty_folder_is_an_error(fetched: Path, monkeypatch: pytest.MonkeyPatch):
    import frameworks

    monkeypatch.setenv("MCCL_FRAMEWORKS", str(fetched / "mlx-0.32.4"))
    with pytest.raises(FileNotFoundError, match=r"run scripts/fetch_frameworks\.sh"):
        frameworks.folders()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = types.SimpleNamespace(
        TORCH=["2.11.0", "2.14.1", "2.15.0"], MLX=["0.32.3", "0.32.4"], PYTHON=python
    )
    monkeypatch.setitem(sys.modules, "mccl._built_for", found)
    return found


@pytest.mark.parametrize(
    ("name", "running", "module"),
    [
        ("torch", "2.11.0+cpu", "mccl._torch_2_11"),
        ("torch", "2.14.0", "mccl._torch_2_14"),
        ("mlx", "0.32.4", "mccl._mlx_0_32_4"),
        ("mlx", "0.32.3.dev20260101+abc", "mccl._mlx_0_32_3"),
    ],
)
def test_the_extension_is_that_of_the_installed_version(built, name, running, module):
    assert extensions.module_for(name, running) == module


@pytest.mark.parametrize(
    ("name", "running", "expected"),
    [
        ("torch", "2.12.0", r"built for torch 2\.11\.0, 2\.14\.1 or 2\.15\.0 and Python .* 2\.12"),
        ("torch", "2.1.0", r"but this is torch 2\.1\.0 and .* install a matching torch, or build"),
        ("mlx", "0.32.5", r"built for MLX 0\.32\.3 or 0\.32\.4 and .* 0\.32\.5"),
    ],
)
def test_another_version_is_an_error_that_names_those_of_the_build(built, name, running, expected):
    with pytest.raises(ImportError, match=expected):
        extensions.module_for(name, running)


def test_another_python_is_an_error(built):
    built.PYTHON = "3.7"
    with pytest.raises(ImportError, match=r"and Python 3\.7, but this is"):
        extensions.module_for("torch", "2.11.0")


def test_a_build_without_frameworks_says_so(built):
    built.MLX = []
    with pytest.raises(ImportError, match="installed without its MLX extension"):
        extensions.module_for("mlx", "0.32.4")


def test_a_folder_of_another_version_is_not_kept(tmp_path: Path):
    """The folder then has exactly the versions that were asked for. Needs no network."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for name, mark in (("torch-2.11.0", f".for-{tag}"), ("torch-2.3.1", f".for-{tag}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / mark).touch()
    run(ROOT / "scripts/fetch_frameworks.sh", sys.executable, tmp_path, "", "torch==2.11.0")
    assert [path.name for path in tmp_path.iterdir()] == ["torch-2.11.0"]
