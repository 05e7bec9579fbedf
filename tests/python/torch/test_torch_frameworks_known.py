"""Changes of frameworks that list the backends they know, on stand-ins with the same names.

tests/integrations runs the frameworks themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STAND_INS = {
    "accelerate/state.py": """
import enum

class DistributedType(enum.Enum):
    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    FSDP = "FSDP"

class PartialState:
    _shared_state = {}
    def _prepare_backend(self, cpu=False, sagemaker_dp=False, backend=None):
        return ("gloo", DistributedType.MULTI_CPU) if cpu else (backend, DistributedType.NO)

class AcceleratorState:
    def __init__(self, mixed_precision="no", cpu=False, fsdp_plugin=None, backend=None):
        self._mixed_precision = mixed_precision
        state = PartialState()
        self.backend, self.distributed_type = state._prepare_backend(cpu, False, backend)
""",
    "ignite/distributed/comp_models/native.py": """
MPI = "mpi"
class _NativeDistModel:
    available_backends = ("gloo",)
""",
    "lightning/fabric/strategies.py": """
class DDPStrategy: pass
class Registry(dict):
    def register(self, name, strategy, description, **arguments):
        self[name] = (strategy, arguments)
STRATEGY_REGISTRY = Registry()
""",
}


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    for name, text in STAND_INS.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        for folder in file.relative_to(tmp_path).parents:
            (tmp_path / folder / "__init__.py").touch()
    # Accelerate imports torch, which registers the backend, before its own modules.
    (tmp_path / "accelerate/__init__.py").write_text("import torch\n")
    return tmp_path


def run(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path} | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


ACCELERATE = """
from accelerate.state import AcceleratorState, PartialState
state = PartialState()
print(*(state._prepare_backend(True, backend=b)[0] for b in ("mccl", "mccl_engine", "nccl", None)))
plugin = type("Plugin", (), {})()
for b in ("mccl", "gloo"):
    print(AcceleratorState(cpu=True, fsdp_plugin=plugin, backend=b).distributed_type.value)
print(PartialState._shared_state["distributed_type"].value)
"""


@pytest.mark.parametrize(
    "first", [pytest.param("", marks=pytest.mark.long), "import torch, mccl\n"]
)
def test_accelerate_keeps_the_backend_on_the_cpu(stand_ins: Path, first: str):
    done = run(stand_ins, first + ACCELERATE, ACCELERATE_USE_FSDP="true")
    assert done.stdout.splitlines() == ["mccl mccl_engine gloo gloo", "FSDP", "MULTI_CPU", "FSDP"]
    assert done.stderr == ""


@pytest.mark.long
def test_accelerate_imported_before_mccl(stand_ins: Path):
    code = "import accelerate.state, mccl\n" + ACCELERATE
    done = run(stand_ins, code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", ACCELERATE_USE_FSDP="false")
    assert done.stdout.splitlines()[:2] == ["mccl mccl_engine gloo gloo", "MULTI_CPU"]


@pytest.mark.long
def test_ignite_lists_the_backend(stand_ins: Path):
    code = """
import torch, mccl
from ignite.distributed.comp_models import native
print(*native._NativeDistModel.available_backends)
# Ignite wraps a model in DDP if the backend is one of the three that it knows.
print(*(name in ("nccl", "gloo", native.MPI) for name in ("mpi", "mccl", "mccl_engine", "ucc")))
"""
    done = run(stand_ins, code)
    assert done.stdout.splitlines() == ["gloo mccl mccl_engine", "True True True False"]


def test_lightning_has_the_strategy(stand_ins: Path):
    code = """
import torch, mccl
from lightning.fabric.strategies import STRATEGY_REGISTRY as registry
strategy, arguments = registry["ddp_mccl"]
print(strategy.__name__, arguments["process_group_backend"])
"""
    assert run(stand_ins, code).stdout == "DDPStrategy mccl\n"


def test_another_version_of_a_framework_is_left_alone_with_a_warning(stand_ins: Path):
    (stand_ins / "accelerate/state.py").write_text("import torch\nx = 1\n")
    done = run(stand_ins, "import torch, mccl, accelerate.state as s; print(s.x)")
    assert done.stdout == "1\n"
    assert "accelerate.state does not accept the backend mccl" in done.stderr
