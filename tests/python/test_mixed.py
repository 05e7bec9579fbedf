"""Jobs whose ranks use different frameworks, as in examples/mixed."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching import BUILD, ROOT, environment, program

MIXED = ROOT / "examples" / "mixed"
LIMIT = 240

FRAMEWORKS = ["torch", "mlx", "numpy"]
MISSING = [name for name in FRAMEWORKS if importlib.util.find_spec(f"{name}") is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def launch(size: int, *script: object) -> subprocess.CompletedProcess:
    return launch_any(size, sys.executable, *script)


def launch_any(size: int, *command: object) -> subprocess.CompletedProcess:
    words = [program(), "launch", "-n", size, "--no-prefix", "--", *command]
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment(MCCL_TIMEOUT="60", OMP_NUM_THREADS="1"),
        check=False,
    )


def compiled(source: Path, target: Path) -> Path:
    """Compiles a C++ program against the library in the build folder."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    assert compiler is not None, "the library was built with a C++ compiler, which is gone"
    library = BUILD / "src"
    subprocess.run(
        [compiler, "-std=c++20", f"-I{ROOT / 'include'}", source, "-o", target,
         f"-L{library}", "-lmccl", f"-Wl,-rpath,{library.resolve()}"],
        check=True,
    )  # fmt: skip
    return target


@pytest.fixture(scope="module")
def cpp_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the C++ rank."""
    return compiled(MIXED / "meet.cpp", tmp_path_factory.mktemp("mixed") / "meet")


def test_four_frameworks_in_one_group(cpp_rank: Path):
    done = launch(4, MIXED / "meet.py", "--frameworks", "torch,mlx,numpy,cpp", "--cpp", cpp_rank)
    assert done.returncode == 0, done.stdout + done.stderr
    said = "sum [10.0, 20.0, 30.0, 40.0], from rank 0 [7.0, 7.0, 7.0, 7.0], "
    said += "ranks [0.0, 1.0, 2.0, 3.0]"
    assert sorted(done.stdout.splitlines()) == [
        f"rank {rank}, {name}: {said}" for rank, name in enumerate(["torch", "mlx", "numpy", "cpp"])
    ]


@pytest.mark.parametrize(
    "order", ["mlx,torch", pytest.param("numpy,cpp,torch,mlx", marks=pytest.mark.long)]
)
def test_any_framework_may_be_rank_0(order: str, cpp_rank: Path):
    size = order.count(",") + 1
    done = launch(size, MIXED / "meet.py", "--frameworks", order, "--cpp", cpp_rank)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == size


@pytest.mark.long
@pytest.mark.parametrize("frameworks", ["torch,mlx", "mlx,numpy,torch"])
def test_frameworks_train_one_model(frameworks: str):
    size = frameworks.count(",") + 1
    done = launch(size, MIXED / "train_digits.py", "--frameworks", frameworks, "--epochs", 12)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^rank (\d), (\w+): accuracy ([\d.]+)%", done.stdout, re.MULTILINE)
    assert sorted((int(rank), name) for rank, name, _ in lines) == list(
        enumerate(frameworks.split(","))
    )
    assert len({accuracy for *_, accuracy in lines}) == 1 and float(lines[0][2]) > 95


MISMATCH = """
import os
if os.environ["MCCL_RANK"] == "0":
    import torch, torch.distributed as dist, mccl
    dist.init_process_group("mccl", init_method="mccl://")
    dist.all_reduce(torch.ones(4))
else:
    import numpy as np, mccl.distributed as dist
    dist.init().all_reduce(np.ones(4))
"""


def test_calls_that_do_not_match_are_named_on_both_sides(tmp_path: Path):
    script = tmp_path / "mismatch.py"
    script.write_text(MISMATCH)
    done = launch(2, script)
    assert done.returncode == 1
    assert "sum of 4 f32" in done.stderr and "sum of 4 f64" in done.stderr, done.stderr


FURTHER_GROUPS = """
import sys, numpy as np
import mccl.distributed as mixed, mccl
if sys.argv[1] == "mixed" and int(__import__("os").environ["RANK"]) == 1:
    mixed.init().barrier()
    raise SystemExit
import torch, torch.distributed as dist
dist.init_process_group("mccl", init_method="mccl://")
if sys.argv[1] == "mixed":
    try:
        dist.new_group([0])
    except RuntimeError as error:
        assert "only 1 of the job's 2 ranks use torch" in str(error), error
    else:
        raise SystemExit("a second group was made")
else:
    pair, both = dist.new_group([1, 0]), [torch.zeros(1), torch.zeros(1)]
    alone = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
    dist.all_gather(both, torch.tensor([float(dist.get_rank())]), group=pair)
    assert torch.cat(both).tolist() == [1.0, 0.0] or dist.get_process_group_ranks(pair) == [0, 1]
    assert dist.get_world_size(alone) == 1
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.parametrize("who", ["mixed", "torch"])
def test_torch_has_further_groups_where_all_ranks_are_its_own(tmp_path: Path, who: str):
    script = tmp_path / "further.py"
    script.write_text(FURTHER_GROUPS)
    done = launch(2, script, who)
    assert done.returncode == 0, done.stderr


ELSEWHERE = """
import torch.distributed as dist, mccl
dist.init_process_group("mccl", init_method="mccl://")
assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
assert dist.get_world_size(dist.new_group([0])) == 1
dist.destroy_process_group()
try:
    dist.init_process_group("mccl", init_method="mccl://", rank=1, world_size=2)
except ValueError as error:
    assert "rank is 1, but the environment sets 0" in str(error), error
else:
    raise SystemExit("a wrong rank was taken")
"""


def test_a_rank_that_contradicts_the_environment_is_refused(tmp_path: Path):
    script = tmp_path / "elsewhere.py"
    script.write_text(ELSEWHERE)
    done = launch(1, script)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_missing_rank_is_an_error():
    code = (
        "import torch.distributed as dist, mccl\n"
        "dist.init_process_group('mccl', init_method='mccl://')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT,
        env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "the rank of this process is not set" in done.stderr
