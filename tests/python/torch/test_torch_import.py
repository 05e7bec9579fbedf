"""Importing mccl: with torch, without torch, and with another version of torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mccl

PACKAGE = Path(mccl.__file__).parent


def run_and_hear(code: str, **environment: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def run(code: str, **environment: str) -> str:
    said, warned = run_and_hear(code, **environment)
    assert "Warning" not in warned, warned
    return said


@pytest.mark.long
def test_torch_loads_the_backend_by_entry_point(tmp_path: Path):
    info = tmp_path / "mccl_for_test-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mccl-for-test\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nmccl = mccl:_autoload\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    run(
        """
import sys
import torch
import torch.distributed as dist
assert dist.is_backend_available("mccl")
loaded = [name for name in sys.modules if name.startswith("mccl._torch")]
assert not loaded, "registering must not load the library"
assert "mccl._core" not in sys.modules
""",
        PYTHONPATH=path,
    )


@pytest.mark.long
def test_mccl_before_torch_without_autoload():
    run(
        """
import sys
import mccl
assert "torch" not in sys.modules, "import mccl must stay cheap"
import torch.distributed as dist
assert dist.is_backend_available("mccl")
assert dist.Backend.backend_capability["mccl"] == ["cpu", "cuda", "mps"]
assert "torch.distributed.distributed_c10d" not in {getattr(f, "name", "") for f in sys.meta_path}
""",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


@pytest.mark.long
def test_mccl_after_torch_without_autoload():
    run(
        """
import torch.distributed as dist
import mccl
import importlib
importlib.reload(mccl)
assert dist.is_backend_available("mccl")
""",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_mccl_without_torch():
    run(
        """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("no torch here")

sys.meta_path.insert(0, NoTorch())
import mccl
assert mccl.get_config().port_base >= 0
assert mccl.get_metrics() is None
assert isinstance(mccl.__version__, str)
assert set(mccl.__all__) <= set(dir(mccl))
try:
    mccl.no_such_thing
except AttributeError as error:
    assert "no_such_thing" in str(error)
else:
    raise AssertionError
"""
    )


def test_another_torch_is_refused_before_the_library_is_loaded():
    out = run(
        """
import sys
import torch
import mccl, mccl.torch_backend
import mccl._built_for as build
for name, wrong in (("TORCH", ["2.3.1", "2.10.0"]), ("PYTHON", "3.7")):
    right = getattr(build, name)
    setattr(build, name, wrong)
    try:
        mccl.torch_backend.load()
    except ImportError as error:
        print(error)
    else:
        raise AssertionError("it was loaded")
    setattr(build, name, right)
assert not any(m.startswith("mccl._torch") for m in sys.modules)
mccl.torch_backend.load()
"""
    )
    first, second = out.splitlines()
    assert "was built for torch 2.3.1 or 2.10.0 and Python" in first
    assert "build mccl again: " in first
    assert "Python 3.7" in second


def test_the_build_names_its_torch():
    import torch

    import mccl._built_for as build

    assert [torch.__version__] == build.TORCH
    assert f"{sys.version_info.major}.{sys.version_info.minor}" == build.PYTHON


OTHER = """
import torch.distributed as dist

def make_other(store, rank, size, timeout):
    raise RuntimeError("the other backend")

dist.Backend.register_backend("mccl", make_other, devices=["cpu"])
"""

BOTH_NAMES = """
import torch.distributed as dist

def tried(name):
    try:
        dist.init_process_group(name, store=dist.HashStore(), rank=0, world_size=1)
    except RuntimeError as error:
        return str(error)
    dist.barrier()
    dist.destroy_process_group()
    return "MCCL"

print(tried("mccl"), tried("mccl_engine"), sep=", ")
"""


def owned_by_another(folder: Path, code: str) -> str:
    """Returns the warning of a process with another backend "mccl". Both backends stay usable."""
    (folder / "others_backend.py").write_text(OTHER)
    said, warned = run_and_hear(
        code + BOTH_NAMES, PYTHONPATH=str(folder), TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    )
    assert said == "the other backend, MCCL\n"
    assert warned.count("RuntimeWarning") == 1, warned
    return warned


@pytest.mark.parametrize(
    "code",
    [
        "import others_backend\nimport mccl\n",
        pytest.param("import mccl\nimport others_backend\n", marks=pytest.mark.long),
        pytest.param(
            "import mccl, torch, others_backend, importlib\n"
            "importlib.reload(mccl), importlib.reload(others_backend)\n",
            marks=pytest.mark.long,
        ),
    ],
    ids=["before", "after", "again"],
)
def test_another_backend_of_the_name_is_reported_once(tmp_path: Path, code: str):
    warned = owned_by_another(tmp_path, code)
    assert f"the module others_backend ({tmp_path}/others_backend.py)" in warned
    assert 'init_process_group("mccl_engine")' in warned


@pytest.mark.long
def test_the_second_name_is_this_backend():
    assert run("import mccl\n" + BOTH_NAMES) == "MCCL, MCCL\n"
