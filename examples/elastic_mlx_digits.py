"""Trains a classifier of handwritten digits with MLX while a rank is killed and replaced.

On three processes of this machine, each of which may start again once:

    mccl launch -n 3 --max-restarts 1 --restart failed examples/elastic_mlx_digits.py

Rank 1 kills itself (SIGKILL) in the middle of epoch 5. The others complete the epoch without it,
and then wait for its replacement. Every epoch prints the loss, the accuracy on digits that the
model has not seen, and the number of ranks. At the end, all ranks must hold the same weights, bit
for bit, and the accuracy must be at least 95 %, as in an undisturbed run (--victim -1).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from sklearn.datasets import load_digits

import mccl.mlx

ACCURACY_WANTED = 0.95
#: Seconds for which ranks wait for each other.
PATIENCE = 120.0


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20, help="passes over the data (default 20)")
    parser.add_argument("--lr", type=float, default=0.2, help="learning rate (default 0.2)")
    parser.add_argument(
        "--victim", type=int, default=1, help="rank that kills itself; -1 for none (default 1)"
    )
    return parser.parse_args()


class Training:
    """A model, its data and its progress, and the group of the ranks that train it."""

    BATCH = 64  #: Images per step, over all ranks together.

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self.step = 0
        self.group = mccl.mlx.init(strict=True, backend="mccl")
        mx.random.seed(0)
        self.model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        digits = load_digits()
        images, labels = mx.array(digits.data.astype(np.float32) / 16), mx.array(digits.target)
        order = np.random.default_rng(2024).permutation(len(labels))
        test, train = (mx.array(part) for part in np.split(order, [len(order) // 5]))
        self.test = images[test], labels[test]
        self.train = images[train], labels[train]
        self.steps_of_epoch = -(-len(self.train[1]) // self.BATCH)

    def make_step(self) -> None:
        """Trains on this rank's share of the next global batch.

        The images of a batch depend only on the step, so any number of ranks can train. A step
        changes the weights only after all ranks have added their gradients.
        """
        epoch, batch = divmod(self.step, self.steps_of_epoch)
        order = np.random.default_rng([0, epoch]).permutation(len(self.train[1]))
        chosen = order[batch * self.BATCH : (batch + 1) * self.BATCH]
        mine = mx.array(np.array_split(chosen, self.group.size())[self.group.rank()])
        loss_of = nn.value_and_grad(
            self.model,
            lambda x, y: nn.losses.cross_entropy(self.model(x), y, reduction="sum"),
        )
        _, gradients = loss_of(self.train[0][mine], self.train[1][mine])
        # The mean over ranks, times their number, is the sum.
        factor = self.lr * self.group.size() / len(chosen)
        means = mccl.mlx.average_gradients(gradients, self.group)
        changed = tree_map(lambda p, g: p - factor * g, self.model.trainable_parameters(), means)
        mx.eval(changed)  # Raises if a rank has died; the weights are then unchanged.
        self.model.update(changed)
        self.step += 1

    def share_progress(self) -> None:
        """Gives all ranks the step and the weights of the rank that is furthest.

        If a rank dies during a step, some ranks may have completed the step and others not. A new
        rank has completed none.
        """
        steps = mccl.mlx.all_gather(mx.array([self.step]), group=self.group)
        furthest = int(steps.argmax().item())
        shared = [
            (name, mccl.mlx.broadcast(value, root=furthest, group=self.group))
            for name, value in tree_flatten(self.model.parameters())
        ]
        self.model.update(tree_unflatten(shared))
        mx.eval(self.model.parameters())
        self.step = int(steps[furthest].item())

    def continue_without_dead_ranks(self) -> None:
        """Trains on with the ranks that remain."""
        self.group = mccl.mlx.shrink(timeout=PATIENCE)
        self.share_progress()

    def take_in_new_ranks(self) -> None:
        """Waits for the replacements of all dead ranks, and trains on with all ranks."""
        self.group = mccl.mlx.reconfigure(timeout=PATIENCE)
        self.share_progress()

    def report(self, epochs: int) -> float:
        """Prints the epoch's result on rank 0 of the group. Returns the accuracy."""
        accuracy = (self.model(self.test[0]).argmax(axis=1) == self.test[1]).mean().item()
        loss = nn.losses.cross_entropy(self.model(self.train[0]), self.train[1]).mean().item()
        if self.group.rank() == 0:
            print(
                f"epoch {self.step // self.steps_of_epoch:3}/{epochs}   loss {loss:.4f}   "
                f"test accuracy {accuracy:7.2%}   ranks {self.group.size()}",
                flush=True,
            )
        return accuracy

    def has_equal_weights(self) -> bool:
        """True if all ranks hold the same bits."""
        parameters = [p.reshape(-1) for _, p in tree_flatten(self.model.parameters())]
        bits = mx.view(mx.concatenate(parameters), mx.uint32)
        largest = mx.distributed.all_max(bits, group=self.group)
        smallest = mx.distributed.all_min(bits, group=self.group)
        return bool(mx.array_equal(largest, smallest).item())


def train(training: Training, epochs: int, death: int) -> float:
    """Trains to the last epoch, whatever ranks die. Returns the accuracy."""
    ranks = training.group.size()
    accuracy = 0.0
    training.share_progress()
    while training.step < epochs * training.steps_of_epoch:
        if training.step == death:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            training.make_step()
        except RuntimeError as error:
            print(f"continues without the dead rank: {error}", flush=True)
            training.continue_without_dead_ranks()
        if training.step % training.steps_of_epoch == 0:
            accuracy = training.report(epochs)
            if training.group.size() < ranks:
                training.take_in_new_ranks()
    return accuracy


def main() -> int:
    """Runs the training and its checks. Returns the exit status."""
    arguments = parse_arguments()
    training = Training(arguments.lr)
    is_new = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    dies = training.group.rank() == arguments.victim and not is_new
    middle = 4 * training.steps_of_epoch + training.steps_of_epoch // 2
    accuracy = train(training, arguments.epochs, middle if dies else -1)
    checks = {
        f"all {training.group.size()} ranks hold the same weights": training.has_equal_weights(),
        f"accuracy at least {ACCURACY_WANTED:.0%}": accuracy >= ACCURACY_WANTED,
    }
    if training.group.rank() == 0:
        for name, holds in checks.items():
            print(f"{'ok  ' if holds else 'FAIL'}  {name}", flush=True)
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
