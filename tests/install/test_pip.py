"""`pip install .` into fresh environments: with the installed torch and MLX, and with neither.

The command runs without the network. The build requirements are wheels made from the installed
packages, so that pip isolates the build as usual.
"""

import importlib.metadata
import re
import sys
import zipfile
from pathlib import Path

import pytest
from environments import ROOT, WITHOUT_CUDA, Environment, run

pytestmark = pytest.mark.long

BUILD_TOOLS = ("scikit-build-core", "nanobind", "packaging", "pathspec")


def install(environment: Environment, tools: Path, name: str) -> str:
    """Installs the project with the build tools from a folder, and returns pip's output.

    The build folder is kept, so that the next run compiles only what has changed.
    """
    return run(
        sys.executable, "-m", "pip", "--python", environment.python, "install", "--verbose",
        "--no-index", "--find-links", tools,
        f"--config-settings=build-dir={ROOT}/build/pip-{name}", *WITHOUT_CUDA, ROOT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel of each build tool, made from its installed files."""
    folder = tmp_path_factory.mktemp("tools")
    for tool in BUILD_TOOLS:
        distribution = importlib.metadata.distribution(tool)
        name = f"{tool.replace('-', '_')}-{distribution.version}-py3-none-any.whl"
        with zipfile.ZipFile(folder / name, "w") as wheel:
            for file in distribution.files:
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    wheel.write(file.locate(), file)
    return folder


@pytest.fixture(scope="module")
def with_torch(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> tuple[Environment, str]:
    """An environment that sees all packages of the running one, with mccl newly installed."""
    environment = Environment(tmp_path_factory.mktemp("with_torch") / "venv")
    environment.link_all()
    return environment, install(environment, tools, "with-torch")


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> tuple[Environment, str]:
    """An environment that sees no other packages, with mccl newly installed."""
    environment = Environment(tmp_path_factory.mktemp("without_torch") / "venv")
    return environment, install(environment, tools, "without-torch")


def test_the_library_lies_beside_its_extensions(with_torch: tuple[Environment, str]):
    files = {"__init__.py", "py.typed", "_core", "_distributed", "_distributed.pyi", "libmccl.so.0"}
    assert files <= with_torch[0].installed()


def test_the_installed_package_is_the_one_imported(with_torch: tuple[Environment, str]):
    environment, _ = with_torch
    file = environment.run("import mccl; print(mccl.__file__)")
    assert Path(file).is_relative_to(environment.packages)


def test_the_version_is_that_of_the_build_and_says_what_it_was_built_for(
    with_torch: tuple[Environment, str], without_torch: tuple[Environment, str]
):
    version = re.search(r"project\(mccl VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    code = "import importlib.metadata as m, mccl; print(mccl.__version__, m.version('mccl-engine'))"
    torch = ".".join(importlib.metadata.version("torch").split(".")[:2])
    mlx = importlib.metadata.version("mlx")
    assert with_torch[0].run(code) == f"{version} {version}+torch{torch}.mlx{mlx}"
    assert without_torch[0].run(code) == f"{version} {version}+without.torch.mlx"


def test_torch_finds_the_backend(with_torch: tuple[Environment, str]):
    code = """
import torch, torch.distributed as dist, mccl
dist.init_process_group("mccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x)
print(dist.get_backend(), x.tolist())
dist.destroy_process_group()
"""
    assert with_torch[0].run(code).splitlines()[-1] == "mccl [1.0, 1.0, 1.0]"


def test_mlx_finds_its_groups(with_torch: tuple[Environment, str]):
    code = "import mccl.mlx as m; g = m.init(); print(type(g).__module__, g.size())"
    assert with_torch[0].run(code) == "mlx.core.distributed 1"


def test_a_variable_has_programs_of_mlx_run_on_mccl(with_torch: tuple[Environment, str]):
    code = """
import os, subprocess, sys
line = "import mlx.core as mx; print(mx.distributed.init.__module__)"
for told in ({}, {"MCCL_MLX": "1"}):
    subprocess.run([sys.executable, "-P", "-c", line], env=os.environ | told, check=True)
"""
    assert with_torch[0].run(code).splitlines() == ["mlx.core.distributed", "mccl.mlx.registry"]


def test_without_mlx_the_import_says_so(without_torch: tuple[Environment, str]):
    code = """
try:
    import mccl.mlx
except ImportError as error:
    print(error)
"""
    assert "mccl.mlx needs MLX" in without_torch[0].run(code)


def test_entry_points_are_declared(with_torch: tuple[Environment, str]):
    code = """
import importlib.metadata as m
for group, name in (
    ("torch.backends", "mccl"),
    ("torch.distributed.backends", "mccl"),
    ("torch.distributed.backends", "mccl_engine"),
):
    print([e.value for e in m.entry_points(group=group) if e.name == name])
"""
    assert with_torch[0].run(code).splitlines() == ["['mccl_engine:autoload']"] * 3


def test_without_torch_the_rest_is_installed_and_it_says_so(
    without_torch: tuple[Environment, str],
):
    environment, said = without_torch
    assert {"__init__.py", "_core", "libmccl.so.0"} <= environment.installed()
    last = [line for line in said.splitlines() if line.startswith("Successfully installed")]
    assert last[0].endswith("+without.torch.mlx")
    for name in ("torch", "mlx"):
        assert f"{name} extension: not built" in said
        assert f"install {name}, then run again: pip install {ROOT}" in " ".join(said.split())
    assert environment.run("import mccl; print(mccl.MCCLConfig().port_base)") == "29600"


def test_the_program_lies_beside_the_interpreter_and_finds_its_library(
    without_torch: tuple[Environment, str],
):
    program = without_torch[0].python.parent / "mccl"
    version = without_torch[0].run("import mccl; print(mccl.__version__)")
    assert run(program, "--version") == f"mccl {version}\n"
    python = without_torch[0].python
    assert run(python, "-P", "-m", "mccl", "--version") == f"mccl {version}\n"
    said = run(program, "bench", "--no-bounds", "--sizes", "64", "--iterations", "5")
    assert said.splitlines()[-1].split()[0] == "64"
