"""Trains a classifier of handwritten digits with DistributedDataParallel, and checks the result.

On two processes of this machine:

    torchrun --nproc_per_node=2 --standalone examples/ddp_digits.py

Every epoch prints the loss and the accuracy on digits that the model has not seen. Three checks
follow: the accuracy is at least 95 %; all ranks hold the same weights, bit for bit; and a single
process that trains on the same global batches ends with the same weights to 1e-5.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ACCURACY_WANTED = 0.95
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Digits:
    """Images of 8 by 8 pixels between 0 and 1, and the digits they show."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="mccl", help="mccl (default), gloo, or another")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the data (default 20)")
    parser.add_argument(
        "--global-batch",
        type=int,
        default=64,
        help="images per step, over all ranks together (default 64)",
    )
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (default 0.05)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and order (default 0)")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda", "mps"),
        default="cpu",
        help="device to train on (default cpu)",
    )
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="train in one process without torch.distributed, for comparison",
    )
    arguments = parser.parse_args()
    for name in ("epochs", "global_batch"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if not is_there(arguments.device):
        parser.error(f"--device {arguments.device}: torch finds no such device on this machine")
    return arguments


def is_there(device: str) -> bool:
    """True if torch can compute on a device of this kind."""
    if device == "cuda":
        return torch.cuda.is_available()
    return device != "mps" or torch.backends.mps.is_available()


def device_of_rank(kind: str) -> torch.device:
    """The CPU, or one of this machine's GPUs, assigned to its ranks in turn."""
    if kind != "cuda":
        return torch.device(kind)
    # Sums must be deterministic: a single process must end with the same weights.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def load_data(device: torch.device) -> Digits:
    """Splits scikit-learn's digits, alike on every rank; a fifth are for testing."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32).div_(16).reshape(-1, 1, 8, 8)
    images, labels = images.to(device), torch.tensor(digits.target, device=device)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2024))
    test, train = order.to(device).split([len(order) // 5, len(order) - len(order) // 5])
    return Digits(images[train], labels[train], images[test], labels[test])


def make_model(seed: int) -> nn.Module:
    """A small convolutional network; the seed determines its initial weights."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.GELU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def train(
    model: nn.Module, data: Digits, arguments: argparse.Namespace, rank: int, size: int
) -> Iterator[float]:
    """Yields this rank's loss in each epoch, summed over its images.

    The order of the images depends only on the seed and the epoch, so any number of ranks uses the
    same global batches. Each rank takes its share of every batch.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    for epoch in range(arguments.epochs):
        generator = torch.Generator().manual_seed(arguments.seed * 1000 + epoch)
        order = torch.randperm(len(data.train_labels), generator=generator)
        loss_of_epoch = 0.0
        for batch in order.to(data.train_labels.device).split(arguments.global_batch):
            mine = batch.tensor_split(size)[rank]
            logits = model(data.train_images[mine])
            loss = nn.functional.cross_entropy(logits, data.train_labels[mine], reduction="sum")
            optimizer.zero_grad()
            # DDP averages gradients over ranks. With this scale, the average is the gradient of the
            # mean loss of the global batch, even if the shares differ in size.
            (loss * (size / len(batch))).backward()
            optimizer.step()
            loss_of_epoch += loss.item()
        yield loss_of_epoch


@torch.no_grad()
def count_correct(model: nn.Module, data: Digits, rank: int, size: int) -> int:
    """The number of test images in this rank's share that the model classifies correctly."""
    images = data.test_images.tensor_split(size)[rank]
    labels = data.test_labels.tensor_split(size)[rank]
    return int((model(images).argmax(dim=1) == labels).sum())


def weights_of(model: nn.Module) -> torch.Tensor:
    """All parameters, concatenated, on the CPU."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()


def all_ranks_equal(weights: torch.Tensor) -> bool:
    """True if every rank holds the same bits."""
    digest = hashlib.sha256(weights.numpy().tobytes()).digest()
    mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mine)
    return all(torch.equal(mine, other) for other in gathered)


@contextmanager
def progress_over(epochs: int, console: Console, shown: bool) -> Iterator[Progress | None]:
    """A progress bar on a terminal; None elsewhere, because the printed lines suffice."""
    if not (shown and console.is_terminal):
        yield None
        return
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task("training", total=epochs)
        yield progress


def run_epochs(
    model: nn.Module, data: Digits, arguments: argparse.Namespace, rank: int, size: int
) -> float:
    """Trains and prints progress on rank 0. Returns the last accuracy."""
    console = Console(highlight=False)
    accuracy = 0.0
    with progress_over(arguments.epochs, console, rank == 0) as progress:
        for epoch, loss in enumerate(train(model, data, arguments, rank, size), start=1):
            totals = torch.tensor(
                [loss, count_correct(model, data, rank, size)], dtype=torch.float64
            )
            if dist.is_initialized():
                dist.all_reduce(totals)
            mean_loss = totals[0].item() / len(data.train_labels)
            accuracy = totals[1].item() / len(data.test_labels)
            if rank == 0:
                console.print(
                    f"epoch {epoch:3}/{arguments.epochs}   loss {mean_loss:.4f}   "
                    f"test accuracy {accuracy:7.2%}"
                )
            if progress is not None:
                progress.advance(progress.task_ids[0])
    return accuracy


def train_alone(data: Digits, arguments: argparse.Namespace) -> torch.Tensor:
    """The weights that a single process reaches on the same global batches."""
    model = make_model(arguments.seed).to(data.train_images.device)
    for _ in train(model, data, arguments, rank=0, size=1):
        pass
    return weights_of(model)


def report(name: str, good: bool, found: str) -> bool:
    """Prints one verdict, on rank 0 only, and returns it."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"{'ok  ' if good else 'FAIL'}  {name}: {found}", flush=True)
    return good


def check(model: nn.Module, data: Digits, arguments: argparse.Namespace) -> bool:
    """Compares the ranks with each other, then with a single process."""
    weights = weights_of(model)
    size = dist.get_world_size()
    same = all_ranks_equal(weights)
    good = report(
        "weights of all ranks", same, f"{size} ranks, {'bit-identical' if same else 'different'}"
    )
    difference = torch.zeros(1)
    if dist.get_rank() == 0:
        difference[0] = (weights - train_alone(data, arguments)).abs().max()
    dist.broadcast(difference, src=0)
    return good & report(
        "weights of a single-process run",
        difference.item() <= TOLERANCE,
        f"largest difference {difference.item():.1e}, allowed {TOLERANCE:.0e}",
    )


def show_metrics() -> None:
    """Prints the metrics that MCCL counted in this process."""
    import mccl

    summary = mccl.get_metrics()
    if summary is None:
        return
    table = Table("metric", "value", title="MCCL on rank 0")
    table.columns[1].justify = "right"
    for name in (
        "total_ops",
        "total_bytes_sent",
        "total_bytes_recv",
        "total_errors",
        "avg_latency_ms",
        "p50_latency_ms",
        "p99_latency_ms",
        "peak_throughput_gbps",
        "avg_queue_wait_ms",
        "avg_network_ms",
        "avg_reduce_ms",
        "avg_sync_ms",
    ):
        value = getattr(summary, name)
        table.add_row(name, f"{value:,.3f}" if isinstance(value, float) else f"{value:,}")
    Console().print(table)


def join_group(backend: str) -> None:
    """Joins the ranks that torchrun started; without torchrun, a group of one."""
    if backend == "mccl":
        import mccl  # noqa: F401  (registers the backend)
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def main() -> int:
    """Runs what the command line requests. Returns 0 if every check passed."""
    arguments = parse_arguments()
    # The model is tiny: more threads would cost time and change the order of sums.
    torch.set_num_threads(1)
    device = device_of_rank(arguments.device)
    data = load_data(device)
    model = make_model(arguments.seed).to(device)

    if arguments.baseline:
        accuracy = run_epochs(model, data, arguments, rank=0, size=1)
        return 0 if accuracy_is_enough(accuracy) else 1

    join_group(arguments.backend)
    try:
        rank, size = dist.get_rank(), dist.get_world_size()
        if rank == 0:
            print(
                f"{len(data.train_labels)} digits to train on, {len(data.test_labels)} to test; "
                f"{size} ranks on {arguments.backend}, {arguments.global_batch} images per step",
                flush=True,
            )
        replica = DistributedDataParallel(model)
        accuracy = run_epochs(replica, data, arguments, rank, size)
        good = accuracy_is_enough(accuracy) & check(model, data, arguments)
        if rank == 0 and arguments.backend == "mccl":
            show_metrics()
    finally:
        dist.destroy_process_group()
    return 0 if good else 1


def accuracy_is_enough(accuracy: float) -> bool:
    """Reports whether the final accuracy reaches the required one."""
    return report(
        "test accuracy",
        accuracy >= ACCURACY_WANTED,
        f"{accuracy:.2%}, expected {ACCURACY_WANTED:.0%}",
    )


if __name__ == "__main__":
    sys.exit(main())
