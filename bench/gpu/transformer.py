"""A DDP step and a tensor-parallel forward of a small transformer, by MCCL and by NCCL in one run.

    torchrun --nproc_per_node=2 --standalone bench/gpu/transformer.py [--backend auto]

Milliseconds, medians, the slowest rank's; the last column is MCCL's over NCCL's. The results of
both are compared first. --backend: MCCL's way, see docs/gpus.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from timing import Timer, capture

WIDTH, HEADS, LAYERS, WORDS = 1024, 16, 8, 4096


class Layer(nn.Module):
    """One layer of which this rank has its heads and its part of the inner width.

    With a group of one rank it is the whole. Two sums over the ranks, as Megatron makes them.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        super().__init__()
        self.group = group
        self.parts = dist.get_world_size(group) if group else 1
        own = WIDTH // self.parts
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads = nn.Linear(WIDTH, 3 * own, bias=False)
        self.joined = nn.Linear(own, WIDTH, bias=False)
        self.inner = nn.Linear(WIDTH, 4 * own, bias=False)
        self.outer = nn.Linear(4 * own, WIDTH, bias=False)

    def summed(self, part: torch.Tensor) -> torch.Tensor:
        """Over all ranks."""
        if self.group:
            dist.all_reduce(part, group=self.group)
        return part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same on every rank."""
        batch, length, _ = x.shape
        query, key, value = (
            part.view(batch, length, HEADS // self.parts, -1).transpose(1, 2)
            for part in self.heads(self.first(x)).chunk(3, dim=-1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.summed(self.joined(seen.transpose(1, 2).reshape(batch, length, -1)))
        return x + self.summed(self.outer(functional.gelu(self.inner(self.second(x)))))


def layers(where: torch.device, group: dist.ProcessGroup | None, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    with where:
        return nn.Sequential(*(Layer(group) for _ in range(LAYERS))).bfloat16()


class Language(nn.Module):
    """Guesses the next word."""

    def __init__(self, where: torch.device) -> None:
        super().__init__()
        self.layers = layers(where, None, seed=1)
        with where:
            self.words = nn.Embedding(WORDS, WIDTH).bfloat16()
            self.scores = nn.Linear(WIDTH, WORDS, bias=False).bfloat16()

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """The loss."""
        scores = self.scores(self.layers(self.words(text[:, :-1]))).float()
        return functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())


class Step:
    """A step of training by DDP, always of the same text."""

    def __init__(self, where: torch.device, group: dist.ProcessGroup, text: torch.Tensor) -> None:
        from torch.nn.parallel import DistributedDataParallel

        self.model = DistributedDataParallel(
            Language(where), device_ids=[where.index], process_group=group
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, fused=True)
        self.text = text

    def __call__(self) -> None:
        """One step."""
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
    for batch, length in ((1, 128), (8, 512)):
        generator = torch.Generator(where).manual_seed(dist.get_rank())
        text = torch.randint(WORDS, (batch, length + 1), generator=generator, device=where)
        steps = {name: Step(where, group, text) for name, group in groups.items()}
        for _ in range(5):
            for step in steps.values():
                step()
        losses = {name: step.loss.item() for name, step in steps.items()}
        if abs(losses["mccl"] - losses["nccl"]) > 0.02 * losses["nccl"]:
            raise SystemExit(f"after five steps the losses differ: {losses}")
        times = {name: timer.on_gpu(step) for name, step in steps.items()}
        count = sum(p.numel() for p in steps["nccl"].model.parameters())
        tell(f"DDP step, {count / 1e6:.0f}M weights, {batch} x {length} words", times)


@torch.no_grad()
def parallel(where: torch.device, groups: dict[str, dist.ProcessGroup], timer: Timer) -> None:
    models = {name: layers(where, group, dist.get_rank()) for name, group in groups.items()}
    for words in (1, 16, 128, 1024, 4096):
        generator = torch.Generator(where).manual_seed(words)
        x = torch.randn(1, words, WIDTH, generator=generator, device=where).bfloat16()
        forwards = {name: partial(model, x) for name, model in models.items()}
        results = {name: forward() for name, forward in forwards.items()}
        torch.testing.assert_close(results["mccl"], results["nccl"], rtol=0.1, atol=0.1)
        size = f"{x.nbytes >> 10} KiB a sum"
        for _ in range(3):
            for forward in forwards.values():
                forward()
        times = {name: timer.on_gpu(forward) for name, forward in forwards.items()}
        tell(f"forward of {words} words ({size})", times)
        graphs = {name: capture(forward, 1) for name, forward in forwards.items()}
        times = {name: timer.on_gpu(graph.replay) for name, graph in graphs.items()}
        tell("  in a CUDA graph", times)


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
