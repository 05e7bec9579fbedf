"""Times a training step with DDP and with FSDP2; MCCL, Gloo and torch's "fake" backend take turns.

    torchrun --nproc_per_node=2 --standalone bench/peers/ddp_step.py

The same processes hold a group of each backend, and a replica of each model per group. They run a
round of steps on one replica, then on the next. A step is forward, backward and optimizer. The
backend "fake" sends nothing, so its step takes the time that remains without communication. Prints
one JSON line per round, backend and model.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from cells import at_share, emit
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed import fake_pg  # noqa: F401  (registers "fake")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import ddp_digits

BACKENDS = {"mccl-torch": "mccl", "gloo": "gloo", "torch-fake": "fake"}
WIDTH = 2048
LAYERS = 6


def perceptron() -> nn.Module:
    """Makes a model of 25 million parameters in six square layers."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)]
    return nn.Sequential(*layers)


def replica(model: nn.Module, group: dist.ProcessGroup) -> DistributedDataParallel:
    """Wraps the model. With the backend "fake", which returns no sums, a hook takes its place."""
    wrapped = DistributedDataParallel(model, process_group=group)

    def send_nothing(_, bucket):  # noqa: ANN001, ANN202  (DDP refuses annotations that are text)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    if dist.get_backend(group) == "fake":
        wrapped.register_comm_hook(None, send_nothing)
    return wrapped


def digits_step(group: dist.ProcessGroup, batch: int) -> Callable[[], None]:
    """Returns a step of examples/ddp_digits.py with `batch` images on this rank."""
    data = ddp_digits.load_data(torch.device("cpu"))
    model = replica(ddp_digits.make_model(0), group)
    images, labels = data.train_images[:batch], data.train_labels[:batch]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return lambda: one_step(optimizer, lambda: nn.functional.cross_entropy(model(images), labels))


def perceptron_step(group: dist.ProcessGroup, batch: int) -> Callable[[], None]:
    """Returns a step of the large model."""
    model = replica(perceptron(), group)
    rows = torch.randn(batch, WIDTH, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    return lambda: one_step(optimizer, lambda: nn.functional.mse_loss(model(rows), rows))


def sharded_step(group: dist.ProcessGroup, batch: int) -> Callable[[], None]:
    """Returns a step of the large model with FSDP2, whose buffers the group allocates if it can."""
    mesh = DeviceMesh.from_group(group, "cpu")
    model = perceptron()
    shared = group._get_backend(torch.device("cpu")).supports_tensor_alloc(torch.device("cpu"))
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
        module.set_allocate_memory_from_process_group_for_comm(shared)
    rows = torch.randn(batch, WIDTH, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    return lambda: one_step(optimizer, lambda: nn.functional.mse_loss(model(rows), rows))


def one_step(optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> None:
    """Runs forward, backward and optimizer."""
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()


def timed_steps(step: Callable[[], None], count: int) -> list[float]:
    """Returns the seconds of each step on the slowest rank."""
    dist.barrier()
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.tolist()


def main() -> int:
    """Joins the groups, and measures them in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns per backend")
    parser.add_argument("--steps", type=int, default=20, help="steps per turn")
    parser.add_argument("--digits-batch", type=int, default=32, help="images per step of a rank")
    parser.add_argument("--perceptron-batch", type=int, default=8, help="rows per step of a rank")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    import mccl  # noqa: F401  (registers the backend)

    # The default group only coordinates the processes. The measured groups are separate.
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=backend) for name, backend in BACKENDS.items()}
    models = {
        "ddp_digits": (digits_step, arguments.digits_batch),
        "ddp_25m": (perceptron_step, arguments.perceptron_batch),
        "fsdp_25m": (sharded_step, arguments.perceptron_batch),
    }
    for model, (make, batch) in models.items():
        steps = {name: make(group, batch) for name, group in groups.items()}
        for step in steps.values():
            timed_steps(step, 3)
        for turn in range(arguments.rounds):
            for name in list(steps) if turn % 2 == 0 else reversed(steps):
                seconds = timed_steps(steps[name], arguments.steps)
                if dist.get_rank() == 0:
                    figures = {
                        "time_us": statistics.mean(seconds) * 1e6,
                        "p50_us": statistics.median(seconds) * 1e6,
                        "p99_us": at_share(seconds, 0.99) * 1e6,
                        "calls": len(seconds),
                    }
                    emit({"contestant": name, "collective": model, "bytes": 0, **figures})
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
