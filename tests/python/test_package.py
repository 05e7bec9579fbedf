"""The names that `import mccl` provides."""

import json
import subprocess
import sys

import pytest

LOOK = """
import json, mccl
before = dir(mccl)
mccl.MCCLConfig, mccl.get_metrics
import sys
print(json.dumps([before, dir(mccl), mccl.__all__, [n for n in sys.modules if "mccl." in n]]))
"""


def test_dir_lists_exactly_the_public_names():
    done = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True)
    before, after, public, loaded = json.loads(done.stdout)
    assert before == sorted(public)
    assert set(public) <= set(after)
    modules = set(after) - set(public)
    assert {"config", "metrics"} <= modules
    assert {f"mccl.{name}" for name in modules} <= set(loaded)


USES_A_FACE = """
import sys, mccl
before = "mccl.{face}" in sys.modules
assert callable(mccl.{face}.{name})
assert not before and "{face}" in dir(mccl)
"""


@pytest.mark.parametrize(
    ("face", "name", "needs"),
    [
        ("distributed", "init", "numpy"),
        ("hooks", "compress", "torch"),
        ("mlx", "Compression", "mlx.core"),
    ],
)
def test_submodules_are_imported_with_the_package(face: str, name: str, needs: str):
    pytest.importorskip(needs)
    code = USES_A_FACE.format(face=face, name=name)
    subprocess.run([sys.executable, "-c", code], check=True)


WITHOUT_MLX = """
import sys
sys.modules["mlx.core"] = None
import mccl
try:
    mccl.mlx
except ImportError as error:
    print(error)
"""


def test_a_face_whose_framework_is_missing_says_so():
    words = [sys.executable, "-c", WITHOUT_MLX]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert "mccl.mlx needs MLX" in done.stdout
