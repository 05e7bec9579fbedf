"""Trains a classifier of handwritten digits with MLX and MCCL, and checks the result.

On two processes of this machine:

    mccl launch -n 2 examples/mlx_digits.py

Every epoch prints the loss and the accuracy on digits that the model has not seen. Three checks
follow: the accuracy is at least 95 %; all ranks hold the same weights, bit for bit; and a single
process that trains on the same global batches ends with the same weights to 1e-5.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_map
from sklearn.datasets import load_digits

import mccl
import mccl.mlx

ACCURACY_WANTED = 0.95
TOLERANCE = 1e-5

Group = mx.distributed.Group
Average = Callable[[Any], Any]


@dataclass(frozen=True)
class Digits:
    """Images of 64 pixels between 0 and 1, and the digits they show."""

    train_images: mx.array
    train_labels: mx.array
    test_images: mx.array
    test_labels: mx.array


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20, help="passes over the data (default 20)")
    parser.add_argument(
        "--global-batch",
        type=int,
        default=64,
        help="images per step, over all ranks together (default 64)",
    )
    parser.add_argument("--lr", type=float, default=0.2, help="learning rate (default 0.2)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and order (default 0)")
    arguments = parser.parse_args()
    for name in ("epochs", "global_batch"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return arguments


def load_data() -> Digits:
    """Splits scikit-learn's digits, alike on every rank; a fifth are for testing."""
    digits = load_digits()
    images = digits.data.astype(np.float32) / 16
    order = np.random.default_rng(2024).permutation(len(images))
    test, train = np.split(order, [len(order) // 5])
    return Digits(
        mx.array(images[train]),
        mx.array(digits.target[train]),
        mx.array(images[test]),
        mx.array(digits.target[test]),
    )


def make_model(seed: int) -> nn.Module:
    """A perceptron with one hidden layer; the seed determines its initial weights."""
    mx.random.seed(seed)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def batches_of(images: int, global_batch: int) -> int:
    """Number of batches in an epoch. Their sizes differ by at most one image."""
    return -(-images // global_batch)


def train(
    model: nn.Module,
    data: Digits,
    arguments: argparse.Namespace,
    rank: int,
    size: int,
    average: Average,
) -> Iterator[float]:
    """Yields this rank's loss in each epoch, summed over its images.

    The order of the images depends only on the seed and the epoch, so any number of ranks uses the
    same global batches. Each rank takes its share of every batch.
    """
    optimizer = optim.SGD(arguments.lr, momentum=0.9)

    def loss_of(images: mx.array, labels: mx.array) -> mx.array:
        return nn.losses.cross_entropy(model(images), labels, reduction="sum")

    step = nn.value_and_grad(model, loss_of)
    for epoch in range(arguments.epochs):
        order = np.random.default_rng([arguments.seed, epoch]).permutation(len(data.train_labels))
        loss_of_epoch = mx.array(0.0)
        for batch in np.array_split(order, batches_of(len(order), arguments.global_batch)):
            mine = mx.array(np.array_split(batch, size)[rank])
            loss, gradients = step(data.train_images[mine], data.train_labels[mine])
            # With this scale, the mean over ranks of the gradients of sums is the gradient of the
            # mean loss of the global batch, even if the shares differ in size.
            scale = size / len(batch)
            scaled = tree_map(lambda g, scale=scale: g * scale, gradients)
            optimizer.update(model, average(scaled))
            loss_of_epoch = loss_of_epoch + loss
            mx.eval(model.parameters(), optimizer.state, loss_of_epoch)
        yield loss_of_epoch.item()


def count_correct(model: nn.Module, data: Digits, rank: int, size: int) -> int:
    """The number of test images in this rank's share that the model classifies correctly."""
    mine = mx.array(np.array_split(np.arange(len(data.test_labels)), size)[rank])
    found = model(data.test_images[mine]).argmax(axis=1)
    return int((found == data.test_labels[mine]).sum().item())


def weights_of(model: nn.Module) -> mx.array:
    """All parameters, concatenated."""
    return mx.concatenate([p.reshape(-1) for _, p in tree_flatten(model.parameters())])


def run_epochs(
    model: nn.Module, data: Digits, arguments: argparse.Namespace, group: Group
) -> float:
    """Trains and prints progress on rank 0. Returns the last accuracy."""
    rank, size = group.rank(), group.size()
    epochs = train(model, data, arguments, rank, size, mccl.mlx.average_gradients)
    accuracy = 0.0
    for epoch, loss in enumerate(epochs, start=1):
        mine = mx.array([loss, float(count_correct(model, data, rank, size))])
        total_loss, correct = mx.distributed.all_sum(mine, group=group).tolist()
        accuracy = correct / len(data.test_labels)
        if rank == 0:
            print(
                f"epoch {epoch:3}/{arguments.epochs}   "
                f"loss {total_loss / len(data.train_labels):.4f}   test accuracy {accuracy:7.2%}",
                flush=True,
            )
    return accuracy


def report(group: Group, name: str, good: bool, found: str) -> bool:
    """Prints one verdict, on rank 0 only, and returns it."""
    if group.rank() == 0:
        print(f"{'ok  ' if good else 'FAIL'}  {name}: {found}", flush=True)
    return good


def check(model: nn.Module, data: Digits, arguments: argparse.Namespace, group: Group) -> bool:
    """Compares the ranks with each other, then with a single process."""
    weights = weights_of(model)
    bits = mx.view(weights, mx.uint32)
    largest = mx.distributed.all_max(bits, group=group)
    smallest = mx.distributed.all_min(bits, group=group)
    same = mx.array_equal(largest, smallest).item()
    good = report(
        group,
        "weights of all ranks",
        same,
        f"{group.size()} ranks, {'bit-identical' if same else 'different'}",
    )
    difference = mx.array(0.0)
    if group.rank() == 0:
        alone = make_model(arguments.seed)
        for _ in train(alone, data, arguments, 0, 1, average=lambda gradients: gradients):
            pass
        difference = mx.abs(weights - weights_of(alone)).max()
    found = mccl.mlx.broadcast(difference, group=group).item()
    return good & report(
        group,
        "weights of a single-process run",
        found <= TOLERANCE,
        f"largest difference {found:.1e}, allowed {TOLERANCE:.0e}",
    )


def show_metrics() -> None:
    """Prints the metrics that MCCL counted in this process."""
    summary = mccl.get_metrics()
    if summary is None:
        return
    print("\nMCCL on rank 0")
    for name, value in vars(summary).items():
        text = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
        print(f"  {name:22}{text:>14}")


def main() -> int:
    """Trains and checks. Returns 0 if every check passed."""
    arguments = parse_arguments()
    data = load_data()
    model = make_model(arguments.seed)
    group = mccl.mlx.init()
    images = len(data.train_labels)
    if images // batches_of(images, arguments.global_batch) < group.size():
        sys.exit(
            f"--global-batch {arguments.global_batch} leaves some of {group.size()} ranks without "
            "an image in some batch; give a larger one"
        )
    if group.rank() == 0:
        print(
            f"{len(data.train_labels)} digits to train on, {len(data.test_labels)} to test; "
            f"{group.size()} ranks on mccl, {arguments.global_batch} images per step",
            flush=True,
        )
    accuracy = run_epochs(model, data, arguments, group)
    good = report(
        group,
        "test accuracy",
        accuracy >= ACCURACY_WANTED,
        f"{accuracy:.2%}, expected {ACCURACY_WANTED:.0%}",
    )
    good &= check(model, data, arguments, group)
    if group.rank() == 0:
        show_metrics()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
