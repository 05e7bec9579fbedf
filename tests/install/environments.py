"""Fresh environments that MCCL is installed into."""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(sysconfig.get_path("purelib"))

#: For pip: the kernels for GPUs, which no compiler cache keeps, are compiled by `make build` alone.
WITHOUT_CUDA = ("--config-settings=cmake.define.MCCL_NVCC=",)


def run(*command: object) -> str:
    """Runs a command that must succeed and returns all it printed."""
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
    """A virtual environment that mccl is installed into."""

    def __init__(self, folder: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = folder / "lib" / version / "site-packages"

    def run(self, code: str) -> str:
        """Runs Python code outside the source tree."""
        return run(self.python, "-P", "-c", code).strip()

    def installed(self) -> set[str]:
        """Names of the files of the package's top folder, endings of the interpreter cut off."""
        return {path.name.split(".cpython")[0] for path in (self.packages / "mccl").iterdir()}

    def link(self, names: Iterable[str]) -> None:
        """Makes files and folders of this environment's site-packages visible there."""
        for name in names:
            (self.packages / name).symlink_to(HERE / name)

    def link_all(self) -> None:
        """Makes everything of this environment visible there, but mccl as it is installed here."""
        self.link(path.name for path in HERE.iterdir() if "mccl" not in path.name)
