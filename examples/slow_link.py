"""What codecs bring on a slow link: two models, trained exact and beside it in every codec.

    sudo python examples/slow_link.py --rate 100mbit --picture slow_link.svg

Makes two network namespaces with a link of that rate between them, and trains in both, by DDP: a
classifier of scikit-learn's digits, and a byte-level transformer on the text that Python's own help
comes with. Prints time, bytes and loss for each codec, and draws them. Needs root, ip and tc; the
namespaces are gone afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

CODECS = ["exact", "fp16", "bf16", "int8", "fp8", "int4", "topk", "topk, no feedback", "powersgd"]
ADDRESSES = ["10.83.0.1", "10.83.0.2"]
PORT = 29517


# What each rank does.


def digits_model() -> nn.Module:
    """330,000 parameters."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def digits_batches(rank: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A batch for each step, and what is held out at the end."""
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    inputs = torch.tensor(digits.data / 16, dtype=torch.float32)
    targets = torch.tensor(digits.target)
    held_out = slice(0, 300)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        chosen = 300 + torch.randint(len(inputs) - 300, (64,), generator=generator)
        yield inputs[chosen], targets[chosen]
    yield inputs[held_out], targets[held_out]


def text_model() -> nn.Module:
    """670,000 parameters."""
    import torch
    from torch import nn

    width, context = 128, 64

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(256, width)
            self.places = nn.Parameter(torch.randn(context, width) * 0.02)
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.head = nn.Linear(width, 256)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

        def forward(self, tokens: Tensor) -> Tensor:
            hidden = self.embedding(tokens) + self.places
            return self.head(self.layers(hidden, mask=self.mask, is_causal=True)).flatten(0, 1)

    return Transformer()


def text_batches(rank: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """As digits_batches, of bytes and those that follow them."""
    import pydoc_data.topics

    import torch

    text = "\n".join(pydoc_data.topics.topics.values()).encode()
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    end = len(data) - 20_000
    generator = torch.Generator().manual_seed(rank)

    def batch(first: int, last: int, count: int) -> tuple[Tensor, Tensor]:
        starts = torch.randint(first, last - 65, (count,), generator=generator)
        rows = torch.stack([data[start : start + 65] for start in starts])
        return rows[:, :-1], rows[:, 1:].flatten()

    for _ in range(steps):
        yield batch(0, end, 16)
    generator.manual_seed(12345)
    yield batch(end, len(data), 64)


TASKS = {"digits": (digits_model, digits_batches, 0.05), "text": (text_model, text_batches, 0.1)}


def train(task: str, codec: str, steps: int) -> dict:
    """One model from its beginning; what it took, and where it ended."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import mccl.hooks

    rank = dist.get_rank()
    make_model, batches, rate = TASKS[task]
    torch.manual_seed(0)
    model = DistributedDataParallel(make_model())
    state = None
    if codec not in ("exact", "topk, no feedback"):
        state = mccl.hooks.compress(model, codec, rank=4, warm_up=steps // 20)
    elif codec != "exact":
        state = mccl.hooks.compress(model, "topk", warm_up=steps // 20)
        state.residuals = Forgetful()
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    every = list(batches(rank, steps))
    times = []
    for inputs, targets in every[:-1]:
        begun = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        times.append(time.perf_counter() - begun)
    inputs, targets = every[-1]
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model.module(inputs), targets).item()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    gathered = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, weights)
    given = weights.nbytes
    return {
        "task": task,
        "codec": codec,
        "ms": 1e3 * sorted(times)[len(times) // 2],
        "megabytes": (state.statistics.sent / steps if state else given) / 1e6,
        "loss": loss,
        "same": all(torch.equal(each, weights) for each in gathered),
    }


class Forgetful(dict):
    """Residuals that nobody remembers."""

    def __setitem__(self, name: str, value: object) -> None:
        """Drops it."""


def run_rank(options: argparse.Namespace) -> None:
    """Everything, as one of the two ranks; rank 0 prints a line of JSON for each result."""
    import torch
    import torch.distributed as dist

    import mccl

    torch.set_num_threads(1)
    mccl.init(transport="tcp", compression_min_bytes=4096)
    dist.init_process_group("mccl")
    for task in TASKS:
        for codec in options.codecs:
            result = train(task, codec, options.steps)
            if dist.get_rank() == 0:
                print(json.dumps(result), flush=True)
    dist.destroy_process_group()


# Two hosts and the link between them.


class SlowLink:
    """Two namespaces; each end of the link sends at `rate`, in tc's words."""

    def __init__(self, rate: str) -> None:
        self.names = [f"mccl-slow-{os.getpid()}-{i}" for i in range(2)]
        self.rate = rate

    def __enter__(self) -> SlowLink:
        try:
            for name in self.names:
                self._ip("netns", "add", name)
            first, second = (f"mslow{os.getpid() % 10000}{end}" for end in "ab")
            self._ip("link", "add", first, "type", "veth", "peer", "name", second)
            for name, end, address in zip(self.names, (first, second), ADDRESSES, strict=True):
                self._ip("link", "set", end, "netns", name)
                self._ip("-n", name, "addr", "add", f"{address}/30", "dev", end)
                for device in ("lo", end):
                    self._ip("-n", name, "link", "set", device, "up")
                shape = f"tc qdisc add dev {end} root tbf rate {self.rate} burst 64k latency 50ms"
                subprocess.run(["ip", "netns", "exec", name, *shape.split()], check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def start(self, rank: int, *command: str, output: object = None) -> subprocess.Popen:
        """A command on one of the hosts."""
        variables = {
            "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": ADDRESSES[0],
            "MASTER_PORT": str(PORT), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[rank], *command],
            env=os.environ | variables, stdout=output, text=True,
        )  # fmt: skip


def measure(options: argparse.Namespace) -> list[dict]:
    """Trains on both hosts, and prints each result as it comes."""
    results: list[dict] = []
    here = [sys.executable, str(Path(__file__).resolve()), "--as-rank"]
    with SlowLink(options.rate) as link, tempfile.TemporaryFile("w+") as nowhere:
        command = [*here, "--steps", str(options.steps), "--codecs", *options.codecs]
        ranks = [
            link.start(0, *command, output=subprocess.PIPE),
            link.start(1, *command, output=nowhere),
        ]
        try:
            for line in ranks[0].stdout:
                results.append(json.loads(line))
                print(row(results), flush=True)
        finally:
            for rank in ranks:
                if sys.exc_info()[0]:
                    rank.terminate()
                rank.wait()
    if any(rank.returncode != 0 for rank in ranks):
        raise SystemExit("slow_link: a rank failed; see above")
    return results


# What people see.


def row(results: list[dict]) -> str:
    """The last result as a line of a table, with the table's head before the first of a task."""
    last = results[-1]
    exact = next(each for each in results if each["task"] == last["task"])
    title = ""
    if last is exact:
        title = f"\n{last['task']}\n{'codec':<18} {'ms/step':>8} {'times as fast':>14}"
        title += f" {'MB/step':>8} {'loss':>8}   ranks\n"
    same = "same bits" if last["same"] else "DIFFER"
    return (
        f"{title}{last['codec']:<18} {last['ms']:>8.1f} {exact['ms'] / last['ms']:>14.1f}"
        f" {last['megabytes']:>8.3f} {last['loss']:>8.4f}   {same}"
    )


def picture(results: list[dict], rate: str) -> str:
    """Bars of time, with the loss beside them, as SVG."""
    line, left, width = 22, 170, 420
    parts, y = [], 34
    for task in TASKS:
        rows = [each for each in results if each["task"] == task]
        longest = max(each["ms"] for each in rows)
        parts.append(f'<text x="10" y="{y}" class="title">{task}: time of a step at {rate}</text>')
        y += 10
        for each in rows:
            length = width * each["ms"] / longest
            bar = "exact" if each["codec"] == "exact" else "coded"
            parts.append(
                f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{each["codec"]}</text>'
                f'<rect x="{left}" y="{y + 3}" width="{length:.1f}" height="15" class="{bar}"/>'
                f'<text x="{left + length + 6:.1f}" y="{y + 15}">{each["ms"]:.0f} ms, '
                f"loss {each['loss']:.3f}</text>"
            )
            y += line
        y += 28
    style = (
        "text{font:13px sans-serif;fill:#24292f}.title{font-weight:bold}"
        ".exact{fill:#8c959f}.coded{fill:#0969da}svg{background:#fff}"
    )
    size = f'width="760" height="{y}" viewBox="0 0 760 {y}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>'
        + "\n".join(parts)
        + "</svg>\n"
    )


def main() -> None:
    """Measures as the arguments say, or is one of the ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rate", default="100mbit", help="of each direction of the link, for tc")
    parser.add_argument("--steps", type=int, default=150, help="of training, for each codec")
    parser.add_argument(
        "--codecs", nargs="+", choices=CODECS, default=CODECS, metavar="CODEC",
        help="which of them; the first is what the others are compared with",
    )  # fmt: skip
    parser.add_argument("--picture", type=Path, help="an SVG file to write")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        run_rank(options)
        return
    if os.geteuid() != 0:
        raise SystemExit("slow_link: only root may make network namespaces; use sudo")
    results = measure(options)
    if options.picture:
        options.picture.write_text(picture(results, options.rate))
        print(f"\nwrote {options.picture}")


if __name__ == "__main__":
    main()
