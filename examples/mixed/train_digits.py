"""Trains one classifier of handwritten digits on ranks of different frameworks.

    mccl launch -n 2 examples/mixed/train_digits.py
    mccl launch -n 3 examples/mixed/train_digits.py --frameworks torch,mlx,numpy

Rank r uses the r-th framework. All ranks start with the same weights. Each computes the gradient of
its share of every batch in its own framework, and one all-reduce sums the gradients. At the end
each rank prints the accuracy on digits that the model has not seen, and how far its weights are
from rank 0's. The sum has the same bits on every rank, so only the frameworks' own arithmetic could
cause a difference.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Protocol

import numpy as np
from sklearn.datasets import load_digits

WIDTH = 64
CLASSES = 10
HIDDEN = 128
SHAPES = ((WIDTH, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
ACCURACY_WANTED = 0.95
TOLERANCE = 1e-5


class Learner(Protocol):
    """A rank of the job, with the operations of its framework."""

    rank: int
    size: int

    def gradient(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> object:
        """Returns the gradient of the summed loss, as a flat array of the framework."""

    def sum(self, gradient: object) -> np.ndarray:
        """Returns the sum of the gradients of all ranks."""

    def from_first(self, weights: np.ndarray) -> np.ndarray:
        """Returns rank 0's weights."""


class TorchLearner:
    """Learner with torch.autograd and torch.distributed."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        import mccl  # noqa: F401  (registers the backend)

        dist.init_process_group("mccl", init_method="mccl://")
        torch.set_num_threads(1)
        self.torch, self.dist = torch, dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def gradient(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> object:
        """See Learner."""
        torch = self.torch
        flat = torch.tensor(weights, requires_grad=True)
        w1, b1, w2, b2 = (
            part.reshape(shape)
            for part, shape in zip(flat.split([np.prod(s) for s in SHAPES]), SHAPES, strict=True)
        )
        logits = torch.relu(torch.from_numpy(images) @ w1 + b1) @ w2 + b2
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels), reduction="sum")
        loss.backward()
        return flat.grad

    def sum(self, gradient: object) -> np.ndarray:
        """See Learner."""
        self.dist.all_reduce(gradient)
        return gradient.numpy()

    def from_first(self, weights: np.ndarray) -> np.ndarray:
        """See Learner."""
        first = self.torch.tensor(weights)
        self.dist.broadcast(first, src=0)
        return first.numpy()


class MlxLearner:
    """Learner with mx.grad and mx.distributed."""

    def __init__(self) -> None:
        import mlx.core as mx
        import mlx.nn as nn

        import mccl.mlx

        self.world = mccl.mlx.init(strict=True)
        self.mx, self.nn, self.broadcast = mx, nn, mccl.mlx.broadcast
        self.rank, self.size = self.world.rank(), self.world.size()

    def gradient(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> object:
        """See Learner."""
        mx = self.mx

        def loss_of(flat: object) -> object:
            ends = np.cumsum([np.prod(shape) for shape in SHAPES])[:-1].tolist()
            w1, b1, w2, b2 = (
                part.reshape(shape)
                for part, shape in zip(mx.split(flat, ends), SHAPES, strict=True)
            )
            logits = mx.maximum(mx.array(images) @ w1 + b1, 0) @ w2 + b2
            return self.nn.losses.cross_entropy(logits, mx.array(labels), reduction="sum")

        return mx.grad(loss_of)(mx.array(weights))

    def sum(self, gradient: object) -> np.ndarray:
        """See Learner."""
        return np.array(self.mx.distributed.all_sum(gradient, group=self.world))

    def from_first(self, weights: np.ndarray) -> np.ndarray:
        """See Learner."""
        return np.array(self.broadcast(self.mx.array(weights), root=0, group=self.world))


class NumpyLearner:
    """Learner with hand-written gradients and mccl.distributed."""

    def __init__(self) -> None:
        import mccl.distributed as dist

        self.world = dist.init()
        self.rank, self.size = self.world.rank, self.world.size

    def gradient(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> object:
        """See Learner."""
        w1, b1, w2, b2 = parts_of(weights)
        hidden = np.maximum(images @ w1 + b1, 0)
        error = probabilities(hidden @ w2 + b2)
        error[np.arange(len(labels)), labels] -= 1
        hidden_error = (error @ w2.T) * (hidden > 0)
        parts = (images.T @ hidden_error, hidden_error.sum(0), hidden.T @ error, error.sum(0))
        return np.concatenate([part.ravel() for part in parts])

    def sum(self, gradient: object) -> np.ndarray:
        """See Learner."""
        return self.world.all_reduce(gradient, out=gradient)

    def from_first(self, weights: np.ndarray) -> np.ndarray:
        """See Learner."""
        return self.world.broadcast(weights, root=0)


LEARNERS = {"torch": TorchLearner, "mlx": MlxLearner, "numpy": NumpyLearner}


def parts_of(weights: np.ndarray) -> list[np.ndarray]:
    """Splits the flat `weights` into matrices and vectors."""
    ends = np.cumsum([np.prod(shape) for shape in SHAPES])[:-1]
    return [
        part.reshape(shape) for part, shape in zip(np.split(weights, ends), SHAPES, strict=True)
    ]


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax of each row."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def train(learner: Learner, epochs: int, batch: int, rate: float) -> tuple[np.ndarray, float]:
    """Returns the weights, and their accuracy on digits that the training did not use."""
    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    order = np.random.default_rng(2024).permutation(len(images))
    test, learnt = np.split(order, [len(order) // 5])
    first = np.random.default_rng(0)
    weights = np.concatenate(
        [
            (first.standard_normal(shape) * (len(shape) > 1) / np.sqrt(shape[0])).ravel()
            for shape in SHAPES
        ]
    ).astype(np.float32)
    for epoch in range(epochs):
        shuffled = np.random.default_rng([1, epoch]).permutation(learnt)
        for together in np.array_split(shuffled, -(-len(shuffled) // batch)):
            mine = np.array_split(together, learner.size)[learner.rank]
            gradient = learner.gradient(weights, images[mine], digits.target[mine])
            weights = weights - np.float32(rate / len(together)) * learner.sum(gradient)
    w1, b1, w2, b2 = parts_of(weights)
    guessed = (np.maximum(images[test] @ w1 + b1, 0) @ w2 + b2).argmax(1)
    return weights, float((guessed == digits.target[test]).mean())


def report(accuracy: float, distance: float) -> bool:
    """Prints the checks that failed. Returns True if none failed."""
    if accuracy < ACCURACY_WANTED:
        print(f"FAIL  accuracy: {accuracy:.2%}, expected {ACCURACY_WANTED:.0%}", flush=True)
    if not distance <= TOLERANCE:
        print(f"FAIL  distance: {distance:.1e}, allowed {TOLERANCE:.0e}", flush=True)
    return accuracy >= ACCURACY_WANTED and distance <= TOLERANCE


def main() -> int:
    """Trains this rank's replica."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--frameworks", default="torch,mlx", help="for ranks 0, 1, … (default torch,mlx)"
    )
    parser.add_argument("--epochs", type=int, default=20, help="passes over the data (default 20)")
    parser.add_argument("--batch", type=int, default=64, help="images per step, over all ranks")
    parser.add_argument("--rate", type=float, default=0.3, help="learning rate (default 0.3)")
    arguments = parser.parse_args()
    for option in ("epochs", "batch"):
        if getattr(arguments, option) < 1:
            parser.error(f"--{option} must be at least 1")
    names = arguments.frameworks.split(",")
    for name in names:
        if name not in LEARNERS:
            parser.error(f"{name!r} is not one of {', '.join(LEARNERS)}")
    name = names[int(os.environ.get("MCCL_RANK", "0")) % len(names)]
    learner = LEARNERS[name]()
    weights, accuracy = train(learner, arguments.epochs, arguments.batch, arguments.rate)
    distance = float(np.abs(weights - learner.from_first(weights)).max())
    print(
        f"rank {learner.rank}, {name}: accuracy {accuracy:.2%}, "
        f"weights within {distance:.1e} of rank 0's",
        flush=True,
    )
    return 0 if report(accuracy, distance) else 1


if __name__ == "__main__":
    sys.exit(main())
