"""Times steps of DDP and FSDP2, and tensor-parallel forwards, of a transformer with MCCL and NCCL.

    torchrun --nproc_per_node=2 --standalone bench/gpu/transformer.py [--backend auto]

Prints milliseconds: medians of the slowest rank. The last column is MCCL's time divided by NCCL's.
The results of both are compared first, and the two take turns. --backend is described in
docs/gpus.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from timing import Timer

HEADS, WORDS = 16, 4096


@dataclass(frozen=True)
class Shape:
    """Size of a transformer, which has 12 * width**2 weights per layer."""

    width: int
    layers: int


SMALL, LARGE = Shape(1024, 8), Shape(2048, 20)


class Layer(nn.Module):
    """This rank's share of one layer: its heads, and its part of the inner width.

    In a group of one rank, the share is the whole layer. A forward makes two sums over the ranks,
    as in Megatron.
    """

    def __init__(self, width: int, group: dist.ProcessGroup | None) -> None:
        super().__init__()
        self.group = group
        self.parts = dist.get_world_size(group) if group else 1
        own = width // self.parts
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads = nn.Linear(width, 3 * own, bias=False)
        self.joined = nn.Linear(own, width, bias=False)
        self.inner = nn.Linear(width, 4 * own, bias=False)
        self.outer = nn.Linear(4 * own, width, bias=False)

    def summed(self, part: torch.Tensor) -> torch.Tensor:
        """Returns the sum of `part` over all ranks."""
        if self.group:
            dist.all_reduce(part, group=self.group)
        return part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the layer's output, which is the same on every rank."""
        batch, length, _ = x.shape
        query, key, value = (
            part.view(batch, length, HEADS // self.parts, -1).transpose(1, 2)
            for part in self.heads(self.first(x)).chunk(3, dim=-1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.summed(self.joined(seen.transpose(1, 2).reshape(batch, length, -1)))
        return x + self.summed(self.outer(functional.gelu(self.inner(self.second(x)))))


def layers(
    where: torch.device, shape: Shape, group: dist.ProcessGroup | None, seed: int
) -> nn.Sequential:
    torch.manual_seed(seed)
    with where:
        return nn.Sequential(*(Layer(shape.width, group) for _ in range(shape.layers))).bfloat16()


class Language(nn.Module):
    """A language model, which predicts the next word."""

    def __init__(self, where: torch.device, shape: Shape) -> None:
        super().__init__()
        self.layers = layers(where, shape, None, seed=1)
        with where:
            self.words = nn.Embedding(WORDS, shape.width).bfloat16()
            self.scores = nn.Linear(shape.width, WORDS, bias=False).bfloat16()

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Returns the loss."""
        scores = self.scores(self.layers(self.words(text[:, :-1]))).float()
        return functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())


def with_ddp(model: nn.Module, where: torch.device, group: dist.ProcessGroup) -> nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=[where.index], process_group=group)


def with_fsdp(model: Language, _where: torch.device, group: dist.ProcessGroup) -> nn.Module:
    """Applies FSDP2: each layer gathers its weights when it runs, and reduce-scatters gradients."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, "cuda")
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Step:
    """A training step, always on the same text."""

    def __init__(self, model: nn.Module, text: torch.Tensor) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.text = text

    def __call__(self) -> None:
        """Runs one step."""
        self.optimizer.zero_grad()
        self.loss = self.model(self.text)
        self.loss.backward()
        self.optimizer.step()


def tell(name: str, times: dict[str, float]) -> None:
    if dist.get_rank() == 0:
        ours, theirs = times["mccl"], times["nccl"]
        print(
            f"{name:<44} {ours / 1000:9.3f} {theirs / 1000:9.3f} {ours / theirs:6.2f}", flush=True
        )


def training(where: torch.device, groups: dict[str, dist.ProcessGroup], timer: Timer) -> None:
    for shape, batch, length in ((SMALL, 1, 128), (SMALL, 8, 512), (LARGE, 8, 512)):
        count = sum(p.numel() for p in Language(torch.device("meta"), shape).parameters())
        generator = torch.Generator(where).manual_seed(dist.get_rank())
        text = torch.randint(WORDS, (batch, length + 1), generator=generator, device=where)
        for wrap in (with_ddp, with_fsdp):
            steps = {
                name: Step(wrap(Language(where, shape), where, group), text)
                for name, group in groups.items()
            }
            for _ in range(5):
                for step in steps.values():
                    step()
            losses = {name: step.loss.item() for name, step in steps.items()}
            if abs(losses["mccl"] - losses["nccl"]) > 0.02 * losses["nccl"]:
                raise SystemExit(f"after five steps the losses differ: {losses}")
            kind = "DDP" if wrap is with_ddp else "FSDP2"
            name = f"{kind} step, {count / 1e6:.0f}M weights, {batch} x {length} words"
            tell(name, timer.on_gpu(steps))


@torch.no_grad()
def parallel(where: torch.device, groups: dict[str, dist.ProcessGroup], timer: Timer) -> None:
    models = {name: layers(where, SMALL, group, dist.get_rank()) for name, group in groups.items()}
    for words in (1, 16, 128, 1024, 4096):
        generator = torch.Generator(where).manual_seed(words)
        x = torch.randn(1, words, SMALL.width, generator=generator, device=where).bfloat16()
        forwards = {name: partial(model, x) for name, model in models.items()}
        results = {name: forward() for name, forward in forwards.items()}
        # Both round sums to bf16 (NCCL once per rank), and differences grow from layer to layer.
        torch.testing.assert_close(results["mccl"], results["nccl"], rtol=0.1, atol=0.2)
        size = f"{x.nbytes >> 10} KiB per sum"
        for _ in range(3):
            for forward in forwards.values():
                forward()
        times = timer.on_gpu(forwards)
        tell(f"forward of {words} words ({size})", times)
        tell("  in a CUDA graph", timer.in_graphs(forwards, 1))


def main() -> None:
    import mccl

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="auto")
    where = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(where)
    mccl.init(backend=parser.parse_args().backend)
    dist.init_process_group("mccl")
    groups = {"mccl": dist.group.WORLD, "nccl": dist.new_group(backend="nccl")}
    timer = Timer(dist.new_group(backend="gloo"), repeats=25)
    if dist.get_rank() == 0:
        print(f"{'ms':<44} {'mccl':>9} {'nccl':>9} {'/nccl':>6}")
    training(where, groups, timer)
    parallel(where, groups, timer)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
