"""Trains a convolution-and-attention model on random images, to measure training throughput.

Compare one process, without communication, with two processes on MCCL, at the same global batch:

    python examples/ddp_dummy_train.py --baseline --save-stats baseline.json
    torchrun --nproc_per_node=2 --standalone examples/ddp_dummy_train.py --save-stats ddp.json
    python examples/benchmark_throughput.py --baseline baseline.json --ddp ddp.json -o compared

Both runs are timed alike: a step lasts from taking its batch to the end of the optimizer's update,
on the slowest rank. The default model has about 96 million parameters; --dim, --depth and
--image-size make it smaller.

If an option is not given, a variable from the example of an earlier MCCL replaces it:

    SINGLE_GPU=1          --baseline
    TRAIN_STEPS           --steps
    BATCH_SIZE            --global-batch divided by the number of ranks
    BASELINE_BATCH_SIZE   --global-batch of a baseline, over BATCH_SIZE
    MODEL_HIDDEN          --dim
    MODEL_DEPTH           --depth
    DDP_BUCKET_MB         --bucket-mb
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 1000

# Variables of the earlier example's model, which differs from this one.
FOREIGN_VARIABLES = ("INPUT_DIM", "NUM_CLASSES", "TRAIN_AUTOCAST_FP16")


@dataclass
class Stats:
    """Measurements of one run, which --save-stats writes and benchmark_throughput.py reads."""

    kind: str
    """baseline or ddp."""
    backend: str
    world_size: int
    global_batch: int
    parameters: int
    image_size: int
    warmup_steps: int
    device: str
    threads_per_rank: int
    machine: str
    torch: str
    step_seconds: list[float] = field(default_factory=list)
    """Duration of each timed step on the slowest rank."""
    losses: list[float] = field(default_factory=list)


class Attention(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm_mlp = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (batch, tokens, dim) to the same shape."""
        y = self.norm_attention(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm_mlp(x))


class ConvAttention(nn.Module):
    """Convolutions shrink the image eightfold; attention blocks process the result."""

    def __init__(self, dim: int, depth: int, heads: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, dim // 8, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(dim // 8, dim // 2, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(dim // 2, dim, 3, stride=2, padding=1),
        )
        self.blocks = nn.Sequential(*(Attention(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Maps (batch, 3, height, width) to (batch, classes)."""
        tokens = self.stem(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(tokens)).mean(dim=1))


def variable(name: str, default: int) -> int:
    """Returns an integer variable of the environment. Exits if it is not an integer."""
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        sys.exit(f"{name}: expected a whole number; found {text!r}")


def default_global_batch(baseline: bool) -> int:
    """The default of --global-batch, from BATCH_SIZE (per rank) or BASELINE_BATCH_SIZE."""
    if baseline:
        return variable("BASELINE_BATCH_SIZE", variable("BATCH_SIZE", 8))
    per_rank = variable("BATCH_SIZE", 0)
    return per_rank * variable("WORLD_SIZE", 1) if per_rank else 8


def make_parser() -> argparse.ArgumentParser:
    """The options, with their defaults from the environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--baseline",
        action="store_true",
        default=os.environ.get("SINGLE_GPU", "").lower() in ("1", "true", "yes"),
        help="one process, no communication; without torchrun",
    )
    parser.add_argument("--backend", default="mccl", help="mccl (default), gloo, or another")
    parser.add_argument("--device", default="cpu", help="cpu (default), or as the backend supports")
    parser.add_argument(
        "--steps", type=int, default=variable("TRAIN_STEPS", 20), help="timed steps (default 20)"
    )
    parser.add_argument("--warmup", type=int, default=3, help="untimed steps before (default 3)")
    parser.add_argument(
        "--global-batch", type=int, help="images per step over all ranks (default 8)"
    )
    parser.add_argument(
        "--dim",
        type=int,
        default=variable("MODEL_HIDDEN", 768),
        help="width of the model (default 768)",
    )
    parser.add_argument(
        "--depth",
        type=int,
        default=variable("MODEL_DEPTH", 13),
        help="attention blocks (default 13)",
    )
    parser.add_argument("--heads", type=int, default=12, help="attention heads (default 12)")
    parser.add_argument("--image-size", type=int, default=32, help="pixels per side (default 32)")
    parser.add_argument(
        "--bucket-mb",
        type=int,
        default=variable("DDP_BUCKET_MB", 25),
        help="gradients that DDP sends at a time, in MiB (default 25)",
    )
    parser.add_argument(
        "--threads", type=int, default=0, help="CPU threads per rank (default: torch's)"
    )
    parser.add_argument("--save-stats", type=Path, metavar="FILE", help="write the timings as JSON")
    return parser


def parse_arguments() -> argparse.Namespace:
    """Reads the command line; rejects options that would otherwise fail only after the run."""
    parser = make_parser()
    arguments = parser.parse_args()
    if arguments.global_batch is None:
        arguments.global_batch = default_global_batch(arguments.baseline)
    for name in ("steps", "global_batch", "dim", "depth", "heads", "image_size", "bucket_mb"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if arguments.warmup < 0:
        parser.error("--warmup must be at least 0")
    if arguments.dim % 8 or arguments.dim % arguments.heads:
        parser.error(f"--dim {arguments.dim} must be a multiple of 8 and of --heads")
    if arguments.baseline and "RANK" in os.environ:
        parser.error(
            "--baseline runs one process that has the machine to itself, but torchrun starts "
            f"{os.environ.get('WORLD_SIZE', 'several')} of them. Start it with python"
        )
    if is_first_rank():
        if arguments.save_stats is not None and (reason := why_not_writable(arguments.save_stats)):
            parser.error(f"--save-stats {arguments.save_stats}: {reason}")
        for name in FOREIGN_VARIABLES:
            if name in os.environ:
                print(f"{name} has no effect on this model; see --help", file=sys.stderr)
    return arguments


def is_first_rank() -> bool:
    """True for the one process that prints and writes the results."""
    return os.environ.get("RANK", "0") == "0"


def why_not_writable(target: Path) -> str:
    """Returns why `target` cannot be written; empty if it can. Leaves no file behind."""
    existed = target.exists()
    try:
        with target.open("a"):
            pass
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    if not existed:
        target.unlink()
    return ""


def synchronize(device: str) -> None:
    """Blocks until the device has finished its work, so that times are correct."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    elif device.startswith("mps"):
        torch.mps.synchronize()


def run(arguments: argparse.Namespace, rank: int, size: int) -> Stats:
    """Trains and measures, as one process or as one of several ranks."""
    if arguments.global_batch < size:
        sys.exit(
            f"--global-batch {arguments.global_batch} leaves some of {size} ranks without work"
        )
    torch.manual_seed(0)
    model: nn.Module = ConvAttention(arguments.dim, arguments.depth, arguments.heads)
    model.to(arguments.device)
    parameters = sum(p.numel() for p in model.parameters())
    if dist.is_initialized():
        model = DistributedDataParallel(model, bucket_cap_mb=arguments.bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    share = len(torch.arange(arguments.global_batch).tensor_split(size)[rank])

    stats = Stats(
        kind="ddp" if dist.is_initialized() else "baseline",
        backend=arguments.backend if dist.is_initialized() else "none",
        world_size=size,
        global_batch=arguments.global_batch,
        parameters=parameters,
        image_size=arguments.image_size,
        warmup_steps=arguments.warmup,
        device=arguments.device,
        threads_per_rank=torch.get_num_threads(),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        torch=torch.__version__,
    )
    if rank == 0:
        print(
            f"{stats.kind}: {parameters / 1e6:.1f} M parameters, global batch "
            f"{arguments.global_batch}, {size} rank(s), backend {stats.backend}",
            flush=True,
        )

    generator = torch.Generator().manual_seed(1000 + rank)
    shape = (share, 3, arguments.image_size, arguments.image_size)
    for step in range(arguments.warmup + arguments.steps):
        images = torch.randn(shape, generator=generator)
        labels = torch.randint(CLASSES, (share,), generator=generator)
        synchronize(arguments.device)
        begin = time.perf_counter()
        loss = nn.functional.cross_entropy(
            model(images.to(arguments.device)), labels.to(arguments.device), reduction="sum"
        )
        optimizer.zero_grad()
        (loss * (size / arguments.global_batch)).backward()
        optimizer.step()
        synchronize(arguments.device)
        seconds = time.perf_counter() - begin
        if step < arguments.warmup:
            continue
        stats.step_seconds.append(seconds)
        stats.losses.append(loss.item() / share)
        if rank == 0:
            print(f"step {step - arguments.warmup + 1:4}   {seconds * 1e3:9.1f} ms", flush=True)

    if dist.is_initialized():
        slowest = torch.tensor(stats.step_seconds, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        stats.step_seconds = slowest.tolist()
    return stats


def report(stats: Stats, target: Path | None) -> None:
    """Prints the throughput, and writes the file if one was requested."""
    median = statistics.median(stats.step_seconds)
    print(f"median step {median * 1e3:.1f} ms, {stats.global_batch / median:.2f} samples/s")
    if target is not None:
        target.write_text(json.dumps(asdict(stats), indent=1) + "\n")
        print(f"wrote {target}")


def join_group(backend: str) -> None:
    """Joins the ranks that torchrun started; without torchrun, a group of one."""
    if backend == "mccl":
        import mccl  # noqa: F401  (registers the backend)
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def main() -> int:
    """Runs what the command line requests."""
    arguments = parse_arguments()
    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
    if arguments.baseline:
        report(run(arguments, rank=0, size=1), arguments.save_stats)
        return 0
    join_group(arguments.backend)
    try:
        stats = run(arguments, dist.get_rank(), dist.get_world_size())
        if dist.get_rank() == 0:
            report(stats, arguments.save_stats)
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
