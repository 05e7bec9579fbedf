"""The programs of examples/frameworks, under the launchers that docs/frameworks.md names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import launching
import pytest
from free_port import free_port
from running import EXAMPLES, run
from torchft.coordination import LighthouseServer

#: With it, older versions of torch do not import mccl either.
AS_TORCH_2_14 = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def accelerate(*options: str) -> str:
    fixed = "--num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
    tool = (sys.executable, "-m", "accelerate.commands.launch", *fixed.split())
    script = EXAMPLES / "with_accelerate.py"
    return run(*tool, "--main_process_port", "0", *options, script, **AS_TORCH_2_14)


def loss_of(output: str, kind: str) -> float:
    found = re.search(rf"^2 ranks on mccl, {kind}: loss ([\d.]+)$", output, re.M)
    assert found, output
    return float(found[1])


def test_accelerate_trains_by_ddp_and_fsdp2_alike():
    by_ddp = loss_of(accelerate("--multi_gpu"), "MULTI_CPU")
    fsdp = ("--use_fsdp", "--fsdp_version", "2", "--fsdp_auto_wrap_policy", "NO_WRAP")
    assert loss_of(accelerate(*fsdp), "FSDP") == pytest.approx(by_ddp, abs=1e-5)
    assert by_ddp < 0.1


def test_transformers_under_mccl_launch():
    output = run(
        launching.program(),
        "launch",
        "-n",
        2,
        "--no-prefix",
        sys.executable,
        EXAMPLES / "with_transformers.py",
        **AS_TORCH_2_14,
    )
    assert "2 ranks on mccl: loss " in output


def test_lightning_starts_its_ranks():
    output = run(sys.executable, EXAMPLES / "with_lightning.py", **AS_TORCH_2_14)
    assert "2 ranks on mccl: the same True" in output


def test_ignite_starts_its_ranks():
    output = run(sys.executable, EXAMPLES / "with_ignite.py", **AS_TORCH_2_14)
    assert "2 ranks on mccl: [3.0, 3.0, 3.0] DistributedDataParallel" in output


def loss_of_deepspeed(stage: int, folder: Path) -> float:
    launcher = (sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", 2)
    port = ("--master_port", free_port())
    # DeepSpeed compiles an extension, and waits forever if another process died while it did so.
    extensions = {"TORCH_EXTENSIONS_DIR": str(folder)}
    output = run(*launcher, *port, EXAMPLES / "with_deepspeed.py", stage, **extensions)
    found = re.search(rf"^2 ranks on mccl, stage {stage}: loss ([\d.]+)$", output, re.M)
    assert found, output
    return float(found[1])


def test_deepspeed_trains_alike_with_every_stage_of_zero(tmp_path: Path):
    losses = [loss_of_deepspeed(stage, tmp_path) for stage in range(4)]
    assert losses == pytest.approx([losses[0]] * 4, abs=1e-5)
    assert losses[0] < 0.1


class Replica:
    """A process of with_torchft.py that trains until it is killed."""

    def __init__(self, lighthouse: str, folder: Path, name: str) -> None:
        self.output = folder / name
        with self.output.open("w") as out, (folder / f"{name}.log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, EXAMPLES / "with_torchft.py", "1000000"],
                env=launching.environment(TORCHFT_LIGHTHOUSE=lighthouse),
                stdout=out,
                stderr=log,
            )

    def steps(self) -> dict[int, tuple[str, str]]:
        """Returns the number of replicas and the sum of the weights after each step."""
        lines = re.findall(
            r"^step (\d+) replicas (\d+) weights (\S+)\n", self.output.read_text(), re.M
        )
        return {int(step): (replicas, weights) for step, replicas, weights in lines}

    def last_had(self, replicas: int) -> bool:
        assert self.process.poll() is None, self.output.with_suffix(".log").read_text()[-3000:]
        steps = self.steps()
        return bool(steps) and steps[max(steps)][0] == str(replicas)


def test_torchft_goes_on_after_sigkill(tmp_path: Path):
    lighthouse = LighthouseServer(
        bind="[::]:0", min_replicas=1, join_timeout_ms=3000, heartbeat_timeout_ms=1000
    )
    # The lighthouse names this host, which need not resolve.
    address = f"http://localhost:{lighthouse.address().rpartition(':')[2]}"
    replicas = [Replica(address, tmp_path, name) for name in ("first", "second")]
    try:
        launching.wait_until(lambda: all(replica.last_had(2) for replica in replicas))
        replicas[1].process.kill()
        replicas[1].process.wait()
        launching.wait_until(lambda: replicas[0].last_had(1))
        replicas.append(Replica(address, tmp_path, "third"))
        launching.wait_until(lambda: replicas[0].last_had(2) and replicas[2].last_had(2))
    finally:
        for replica in replicas:
            replica.process.kill()
            replica.process.wait()
        lighthouse.shutdown()
    for other in replicas[1:]:
        both = replicas[0].steps().keys() & other.steps().keys()
        together = [step for step in both if other.steps()[step][0] == "2"]
        assert together
        assert all(replicas[0].steps()[step] == other.steps()[step] for step in together)
