"""Two models for examples that train in minutes: one on digits, one on bytes of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

Batch = tuple["Tensor", "Tensor"]

CONTEXT = 64  # Length of the text model's input, in bytes.
HELD_OUT_BYTES = 20_000
HELD_OUT_DIGITS = 300


@dataclass(frozen=True)
class Task:
    """A model and its data."""

    name: str
    model: Callable[[], nn.Module]
    #: Function of the rank and a number of steps; yields inputs and targets for each step.
    batches: Callable[[int, int], Iterator[Batch]]
    #: Data that no batch contains; the same on every rank.
    held_out: Callable[[], Batch]
    #: Learning rate of SGD with momentum 0.9.
    rate: float


def digits_model() -> nn.Module:
    """A perceptron of 300,000 parameters."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def digits() -> Batch:
    """All of scikit-learn's digits: images scaled to 0 to 1, and labels."""
    import torch
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)


def digits_batches(rank: int, steps: int) -> Iterator[Batch]:
    """Batches of 64 digits each."""
    import torch

    inputs, targets = digits()
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        count = len(inputs) - HELD_OUT_DIGITS
        chosen = HELD_OUT_DIGITS + torch.randint(count, (64,), generator=generator)
        yield inputs[chosen], targets[chosen]


def digits_held_out() -> Batch:
    """The first digits, which no batch contains."""
    inputs, targets = digits()
    return inputs[:HELD_OUT_DIGITS], targets[:HELD_OUT_DIGITS]


def text_model() -> nn.Module:
    """A transformer of two layers on bytes, with 140,000 parameters."""
    import torch
    from torch import nn

    width = 64

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(256, width)
            self.places = nn.Parameter(torch.randn(CONTEXT, width) * 0.02)
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(width, 256)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

        def forward(self, tokens: Tensor) -> Tensor:
            hidden = self.embedding(tokens) + self.places
            return self.head(self.layers(hidden, mask=self.mask, is_causal=True)).flatten(0, 1)

    return Transformer()


def text() -> Tensor:
    """The text of Python's own help, as bytes."""
    import pydoc_data.topics

    import torch

    words = "\n".join(pydoc_data.topics.topics.values()).encode()
    return torch.frombuffer(bytearray(words), dtype=torch.uint8).long()


def rows_at(data: Tensor, starts: Tensor) -> Batch:
    """Returns CONTEXT bytes from each start, and the byte that follows each of these."""
    import torch

    rows = torch.stack([data[start : start + CONTEXT + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:].flatten()


def text_batches(rank: int, steps: int) -> Iterator[Batch]:
    """Batches of 16 rows each."""
    import torch

    data = text()[:-HELD_OUT_BYTES]
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        yield rows_at(data, torch.randint(len(data) - CONTEXT - 1, (16,), generator=generator))


def text_held_out() -> Batch:
    """The end of the text, which no batch contains."""
    import torch

    data = text()[-HELD_OUT_BYTES:]
    return rows_at(data, torch.arange(0, len(data) - CONTEXT - 1, CONTEXT))


TASKS = [
    Task("digits", digits_model, digits_batches, digits_held_out, 0.05),
    Task("text", text_model, text_batches, text_held_out, 0.1),
]
