"""Runs what the README tells people to run, smaller."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TINY_MODEL = ("--dim", "32", "--depth", "1", "--heads", "4", "--steps", "4", "--warmup", "1")


def run(*command: object, ranks: int = 0, status: int = 0) -> str:
    """Runs a script, under torchrun for `ranks` processes, and returns what it printed."""
    launcher = [sys.executable]
    if ranks:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCCL_")}
    # Any free port, so that jobs on one machine do not meet.
    environment |= {"OMP_NUM_THREADS": "1", "MCCL_PORT_BASE": "0"}
    done = subprocess.run(
        [*launcher, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=ROOT,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def load_example(name: str):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("ranks", [2, 3])
def test_digits_learn_and_every_check_passes(ranks: int):
    output = run(EXAMPLES / "ddp_digits.py", "--epochs", "8", ranks=ranks)
    assert output.count("ok  ") == 3
    assert "FAIL" not in output
    accuracy = float(re.findall(r"test accuracy +([\d.]+)%", output)[-1])
    assert accuracy >= 95
    assert "bit-identical" in output
    assert "total_ops" in output


def test_digits_run_without_a_launcher():
    output = run(EXAMPLES / "ddp_digits.py", "--epochs", "6")
    assert output.count("ok  ") == 3


def test_digits_say_so_when_the_model_has_not_learned():
    output = run(EXAMPLES / "ddp_digits.py", "--baseline", "--epochs", "1", status=1)
    assert "FAIL  test accuracy" in output


def test_digits_notice_weights_that_differ(monkeypatch: pytest.MonkeyPatch):
    digits = load_example("ddp_digits")
    monkeypatch.setattr(digits.dist, "get_world_size", lambda: 2)

    def gather_with_one_bit_changed(gathered, mine):
        for tensor in gathered:
            tensor.copy_(mine)
        gathered[1][0] ^= 1

    monkeypatch.setattr(digits.dist, "all_gather", gather_with_one_bit_changed)
    assert not digits.all_ranks_equal(torch.zeros(3))


def test_throughput_is_measured_and_compared(tmp_path: Path):
    script = EXAMPLES / "ddp_dummy_train.py"
    baseline, ddp = tmp_path / "baseline.json", tmp_path / "ddp.json"
    run(script, "--baseline", *TINY_MODEL, "--save-stats", baseline)
    run(script, *TINY_MODEL, "--save-stats", ddp, ranks=2)

    stats = json.loads(ddp.read_text())
    assert (stats["kind"], stats["world_size"], stats["backend"]) == ("ddp", 2, "mccl")
    assert len(stats["step_seconds"]) == 4

    output = run(
        EXAMPLES / "benchmark_throughput.py", "--baseline", baseline, "--ddp", ddp,
        "-o", tmp_path / "compared",
    )  # fmt: skip
    assert "ratio" in output
    for name in ("compared.png", "compared_bars.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    with np.load(tmp_path / "compared.npz") as arrays:
        assert arrays["ddp_step_seconds"].tolist() == stats["step_seconds"]
        assert arrays["world_size"] == 2


@pytest.mark.parametrize(
    "differing", ["global_batch", "parameters", "image_size", "device", "warmup_steps"]
)
def test_fault_35_runs_that_were_timed_differently_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differing: str
):
    common = {
        "kind": "baseline", "global_batch": 8, "parameters": 10, "image_size": 32,
        "device": "cpu", "warmup_steps": 1, "world_size": 1, "step_seconds": [0.1],
    }  # fmt: skip
    other = common | {"kind": "ddp", "backend": "mccl", "world_size": 2}
    other[differing] = "mps" if differing == "device" else 64
    for name, stats in (("a", common), ("b", other)):
        (tmp_path / f"{name}.json").write_text(json.dumps(stats))
    baseline, ddp, prefix = (str(tmp_path / name) for name in ("a.json", "b.json", "c"))
    monkeypatch.setattr(sys, "argv", ["", "--baseline", baseline, "--ddp", ddp, "-o", prefix])
    with pytest.raises(SystemExit, match=f"{differing} {common[differing]} and {other[differing]}"):
        load_example("benchmark_throughput").main()
    assert not (tmp_path / "c.npz").exists()
