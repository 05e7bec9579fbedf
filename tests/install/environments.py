"""Fresh virtual environments into which MCCL is installed."""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(sysconfig.get_path("purelib"))

#: An option for pip that leaves out the GPU kernels. No compiler cache keeps them.
WITHOUT_CUDA = ("--config-settings=cmake.define.MCCL_CUDA_KERNELS=OFF",)


def run(*command: object) -> str:
    """Runs a command, fails unless it succeeds, and returns all its output."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCCL_")}
    done = subprocess.run(
        [str(c) for c in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        env=environment,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def readme_training(folder: Path) -> Path:
    """The program of docs/pytorch.md that trains, as a file."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/pytorch.md").read_text(), re.DOTALL)
    example = next(b for b in blocks if "init_process_group" in b and "import torch\n" in b)
    script = folder / "train.py"
    script.write_text("import os\nos.environ['MCCL_PORT_BASE'] = '0'\n" + example)
    return script


class Environment:
    """A virtual environment into which mccl is installed."""

    def __init__(self, folder: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = folder / "lib" / version / "site-packages"

    def run(self, code: str) -> str:
        """Runs Python code outside the source tree."""
        return run(self.python, "-P", "-c", code).strip()

    def installed(self) -> set[str]:
        """Returns the names in the package's top folder, without the interpreter's suffix."""
        return {path.name.split(".cpython")[0] for path in (self.packages / "mccl").iterdir()}

    def link(self, names: Iterable[str]) -> None:
        """Links files and folders of the running environment's site-packages into this one."""
        for name in names:
            (self.packages / name).symlink_to(HERE / name)

    def link_all(self) -> None:
        """Links all packages of the running environment except mccl."""
        self.link(path.name for path in HERE.iterdir() if "mccl" not in path.name)
