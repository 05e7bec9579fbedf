"""Trains a classifier of handwritten digits while a rank is killed and replaced.

On three processes of this machine, each of which may start again once:

    mccl launch -n 3 --max-restarts 1 --restart failed examples/elastic_digits.py

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
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import mccl
import mccl.distributed

ACCURACY_WANTED = 0.95
#: Seconds for which ranks wait for each other.
PATIENCE = 120.0


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
    parser.add_argument(
        "--victim", type=int, default=1, help="rank that kills itself; -1 for none (default 1)"
    )
    return parser.parse_args()


@dataclass
class Training:
    """A model, its data and its progress, and the group of the ranks that train it."""

    arguments: argparse.Namespace
    group: mccl.distributed.Group
    step: int = 0

    def __post_init__(self) -> None:
        torch.manual_seed(self.arguments.seed)
        self.model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
        digits = load_digits()
        images = torch.tensor(digits.data, dtype=torch.float32) / 16
        labels = torch.tensor(digits.target)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2024))
        test = len(labels) // 5
        self.test = images[order[:test]], labels[order[:test]]
        self.train = images[order[test:]], labels[order[test:]]

    @property
    def steps_of_epoch(self) -> int:
        """Number of global batches in an epoch."""
        return -(-len(self.train[1]) // self.arguments.global_batch)

    def make_step(self) -> None:
        """Trains on this rank's share of the next global batch.

        The images of a batch depend only on the seed and the step, so any number of ranks can
        train. A step changes the weights only after all ranks have added their gradients.
        """
        epoch, batch = divmod(self.step, self.steps_of_epoch)
        generator = torch.Generator().manual_seed(self.arguments.seed * 1000 + epoch)
        order = torch.randperm(len(self.train[1]), generator=generator)
        chosen = order.split(self.arguments.global_batch)[batch]
        mine = chosen.tensor_split(self.group.size)[self.group.rank]
        logits = self.model(self.train[0][mine])
        loss = nn.functional.cross_entropy(logits, self.train[1][mine], reduction="sum")
        self.model.zero_grad()
        loss.backward()
        gradients = torch.cat([p.grad.reshape(-1) for p in self.model.parameters()])
        self.group.all_reduce(gradients.numpy(), out=gradients.numpy())
        self.set_weights(self.weights() - gradients * (self.arguments.lr / len(chosen)))
        self.step += 1

    def weights(self) -> torch.Tensor:
        """A copy of all parameters, as a vector."""
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()

    def set_weights(self, weights: torch.Tensor) -> None:
        """Replaces all parameters."""
        nn.utils.vector_to_parameters(weights, self.model.parameters())

    def share_progress(self) -> None:
        """Gives all ranks the step and the weights of the rank that is furthest.

        If a rank dies during a step, some ranks may have completed the step and others not. A new
        rank has completed none.
        """
        steps = self.group.all_gather(np.array([self.step]))
        furthest = int(steps.argmax())
        self.set_weights(torch.from_numpy(self.group.broadcast(self.weights().numpy(), furthest)))
        self.step = int(steps[furthest])

    def continue_without_dead_ranks(self) -> None:
        """Trains on with the ranks that remain."""
        self.group = self.group.shrink(timeout=PATIENCE)
        self.share_progress()

    def take_in_new_ranks(self) -> None:
        """Waits for the replacements of all dead ranks, and trains on with all ranks."""
        self.group = mccl.distributed.reconfigure(timeout=PATIENCE)
        self.share_progress()

    @torch.no_grad()
    def report(self) -> float:
        """Prints the epoch's result on rank 0 of the group. Returns the accuracy."""
        accuracy = (self.model(self.test[0]).argmax(dim=1) == self.test[1]).double().mean().item()
        loss = nn.functional.cross_entropy(self.model(self.train[0]), self.train[1]).item()
        if self.group.rank == 0:
            print(
                f"epoch {self.step // self.steps_of_epoch:3}/{self.arguments.epochs}   "
                f"loss {loss:.4f}   test accuracy {accuracy:7.2%}   ranks {self.group.size}",
                flush=True,
            )
        return accuracy


def train(training: Training, ranks: int, victim_may_die: bool) -> float:
    """Trains to the last epoch, whatever ranks die. Returns the accuracy."""
    arguments = training.arguments
    steps = training.steps_of_epoch
    death = 4 * steps + steps // 2 if victim_may_die else -1
    accuracy = 0.0
    training.share_progress()
    while training.step < arguments.epochs * steps:
        if training.step == death:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            training.make_step()
        except mccl.distributed.PeerError as error:
            print(f"continues without the dead rank: {error}", flush=True)
            training.continue_without_dead_ranks()
        if training.step % steps == 0:
            accuracy = training.report()
            if training.group.size < ranks:
                training.take_in_new_ranks()
    return accuracy


def main() -> int:
    """Runs the training and its checks. Returns the exit status."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    world = mccl.distributed.init(connect_timeout=PATIENCE)
    is_new = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    training = Training(arguments, world)
    accuracy = train(training, world.size, world.rank == arguments.victim and not is_new)
    weights = training.weights().numpy().view(np.uint8)
    everywhere = training.group.all_gather(weights[np.newaxis])
    checks = {
        f"all {training.group.size} ranks hold the same weights": (everywhere == weights).all(),
        f"accuracy at least {ACCURACY_WANTED:.0%}": accuracy >= ACCURACY_WANTED,
    }
    if training.group.rank == 0:
        for name, holds in checks.items():
            print(f"{'ok  ' if holds else 'FAIL'}  {name}", flush=True)
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
