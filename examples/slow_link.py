"""Measures codecs on a slow link: trains two models, exactly and with every codec.

    sudo python examples/slow_link.py --rate 100mbit --picture slow_link.svg

Creates two network namespaces with a link of that rate between them, and trains in both by DDP. One
model classifies scikit-learn's digits; the other is a byte-level transformer on the text of
Python's own help. Prints time, bytes and loss for each codec, and draws them. Needs root, ip and
tc; the namespaces are removed afterwards. With --rate none, both ranks run on one host without
root, ip and tc; the losses are the same. --peers also trains with PyTorch's own hooks over Gloo.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from small_tasks import TASKS, Task

CODECS = ["exact", "fp16", "bf16", "int8", "fp8", "int4", "topk", "topk, no feedback", "powersgd"]
#: PyTorch's own hooks, compared on the same link in the same run.
PEERS = ["gloo exact", "gloo fp16", "gloo powersgd"]
RANK = 4  # rank of powersgd's matrices
ADDRESSES = ["10.83.0.1", "10.83.0.2"]
PORT = 29517


# The part that each rank runs.


def train(task: Task, codec: str, options: argparse.Namespace) -> dict:
    """Trains one model from its initial weights; returns its cost and its final loss.

    All models use the same number of steps and the same optimizer, with a cosine schedule of the
    learning rate.
    """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    steps = options.steps
    torch.manual_seed(0)
    group = options.gloo if codec.startswith("gloo") else None
    # Uses one bucket: with several, torch's PowerSGD makes calls in an order that differs between
    # ranks.
    model = DistributedDataParallel(task.model(), process_group=group, bucket_cap_mb=25)
    state = add_hook(model, codec, group, steps)
    optimizer = torch.optim.SGD(model.parameters(), task.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    times = []
    for inputs, targets in list(task.batches(dist.get_rank(), steps)):
        begun = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if codec == "topk, no feedback":
            state.residuals.clear()
        times.append(time.perf_counter() - begun)
        schedule.step()
    inputs, targets = task.held_out()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model.module(inputs), targets).item()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    gathered = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, weights)
    sent = weights.nbytes
    if state:
        sent = state.statistics.sent / steps
    return {
        "task": task.name,
        "codec": codec,
        "ms": 1e3 * statistics.median(times[steps // 2 :]),
        "megabytes": None if codec.startswith("gloo ") else sent / 1e6,
        "loss": loss,
        "same": all(torch.equal(each, weights) for each in gathered),
    }


def add_hook(model: Any, codec: str, group: Any, steps: int) -> Any:
    """Adds the codec's hook, with exact first steps; returns MCCL's state, or None without one."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd

    import mccl.hooks

    warm_up = steps // 20
    if codec == "gloo fp16":
        model.register_comm_hook(group, default_hooks.fp16_compress_hook)
    elif codec == "gloo powersgd":
        start = max(2, warm_up)
        state = power_sgd.PowerSGDState(group, RANK, start_powerSGD_iter=start)
        model.register_comm_hook(state, power_sgd.powerSGD_hook)
    elif codec.startswith("topk"):
        return mccl.hooks.compress(model, "topk", warm_up=warm_up, ramp=steps // 4)
    elif codec not in ("exact", "gloo exact"):
        return mccl.hooks.compress(model, codec, rank=RANK, warm_up=warm_up)
    return None


def run_rank(options: argparse.Namespace) -> None:
    """Runs all trainings as one of the two ranks; rank 0 prints one line of JSON per result."""
    import torch
    import torch.distributed as dist

    import mccl

    torch.set_num_threads(1)
    mccl.init(transport="tcp", compression_min_bytes=4096)
    dist.init_process_group("mccl")
    if any(codec.startswith("gloo") for codec in options.codecs):
        options.gloo = dist.new_group(backend="gloo")
    for task in TASKS:
        for codec in options.codecs if task.name in options.tasks else []:
            result = train(task, codec, options)
            if dist.get_rank() == 0:
                print(json.dumps(result), flush=True)
    dist.destroy_process_group()


# Two hosts, and the link between them.


class SlowLink:
    """Two namespaces joined by a link; each end sends at `rate`, in the syntax of tc."""

    def __init__(self, rate: str) -> None:
        self.names = [f"mccl-slow-{os.getpid()}-{i}" for i in range(2)]
        self.devices = [f"mslow{os.getpid() % 10000}{end}" for end in "ab"]
        self.rate = rate

    def __enter__(self) -> SlowLink:
        try:
            for name in self.names:
                self._ip("netns", "add", name)
            first, second = self.devices
            self._ip("link", "add", first, "type", "veth", "peer", "name", second)
            for name, end, address in zip(self.names, self.devices, ADDRESSES, strict=True):
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
        """Starts a command on one of the hosts."""
        inside = ["ip", "netns", "exec", self.names[rank]]
        return start_rank(rank, [*inside, *command], ADDRESSES[0], self.devices[rank], output)


class Loopback:
    """One host for both ranks, without a slow link."""

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, rank: int, *command: str, output: object = None) -> subprocess.Popen:
        """Starts a command on this host."""
        return start_rank(rank, list(command), "127.0.0.1", "lo", output)


def start_rank(
    rank: int, command: list[str], root: str, device: str, output: object
) -> subprocess.Popen:
    """Starts one of the two ranks, which meet at `root`."""
    variables = {
        "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": root, "MASTER_PORT": str(PORT),
        "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": device,
    }  # fmt: skip
    return subprocess.Popen(command, env=os.environ | variables, stdout=output, text=True)


def measure(options: argparse.Namespace) -> list[dict]:
    """Trains on both hosts, and prints each result when it arrives."""
    os.environ.setdefault("MCCL_JOB_KEY", secrets.token_hex(32))  # Ranks on two hosts need a key.
    results: list[dict] = []
    here = [sys.executable, str(Path(__file__).resolve()), "--as-rank"]
    hosts = Loopback() if options.rate == "none" else SlowLink(options.rate)
    with hosts as link, tempfile.TemporaryFile("w+") as nowhere:
        command = [*here, "--steps", str(options.steps), "--codecs", *options.codecs]
        command += ["--tasks", *options.tasks]
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


# Output for users.


def row(results: list[dict]) -> str:
    """Returns the last result as a line of a table; a header precedes a task's first result."""
    last = results[-1]
    exact = next(each for each in results if each["task"] == last["task"])
    title = ""
    if last is exact:
        title = f"\n{last['task']}\n{'codec':<18} {'ms/step':>8} {'times as fast':>14}"
        title += f" {'MB/step':>8} {'loss':>8} {'to exact':>9}   ranks\n"
    same = "same bits" if last["same"] else "DIFFER"
    sent = "-" if last["megabytes"] is None else f"{last['megabytes']:.3f}"
    worse = 100 * (last["loss"] / exact["loss"] - 1)
    return (
        f"{title}{last['codec']:<18} {last['ms']:>8.1f} {exact['ms'] / last['ms']:>14.1f}"
        f" {sent:>8} {last['loss']:>8.4f} {worse:>+7.1f} %   {same}"
    )


def picture(results: list[dict], rate: str) -> str:
    """Returns an SVG with a bar for each codec's step time, and its loss beside the bar."""
    line, left, width = 22, 170, 420
    parts, y = [], 34
    for task in dict.fromkeys(each["task"] for each in results):
        rows = [each for each in results if each["task"] == task]
        longest = max(each["ms"] for each in rows)
        parts.append(f'<text x="10" y="{y}" class="title">{task}: time of a step at {rate}</text>')
        y += 10
        for each in rows:
            length = width * each["ms"] / longest
            bar = "exact" if each["codec"] == "exact" else "coded"
            if each["codec"] in PEERS:
                bar = "peer"
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
        ".exact{fill:#8c959f}.coded{fill:#0969da}.peer{fill:#bc4c00}svg{background:#fff}"
    )
    size = f'width="760" height="{y}" viewBox="0 0 760 {y}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>'
        + "\n".join(parts)
        + "</svg>\n"
    )


def rate_for_tc(text: str) -> str:
    """Returns a rate above zero in tc's syntax, or "none". Raises argparse's error otherwise."""
    rate = re.fullmatch(r"(\d+(?:\.\d+)?)((?:[kmgt]i?)?(?:bit|bps))?", text, re.IGNORECASE)
    if text != "none" and (rate is None or float(rate[1]) == 0):
        raise argparse.ArgumentTypeError(
            f"expected a rate such as 100mbit, or none; found {text!r}"
        )
    return text


def main() -> None:
    """Runs the measurement, or one of its ranks if given --as-rank."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--rate", type=rate_for_tc, default="100mbit",
        help="rate of each direction of the link, in the syntax of tc; or none",
    )  # fmt: skip
    tasks = [task.name for task in TASKS]
    parser.add_argument("--tasks", nargs="+", choices=tasks, default=tasks, metavar="TASK")
    parser.add_argument("--steps", type=int, default=150, help="training steps for each codec")
    parser.add_argument(
        "--codecs", nargs="+", choices=CODECS + PEERS, default=CODECS, metavar="CODEC",
        help="codecs to run; the others are compared with the first",
    )  # fmt: skip
    parser.add_argument("--peers", action="store_true", help="also run PyTorch's hooks over Gloo")
    parser.add_argument("--picture", type=Path, help="SVG file to write")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    if options.as_rank:
        run_rank(options)
        return
    if options.peers:
        options.codecs = [*options.codecs, *PEERS]
    if options.rate != "none" and os.geteuid() != 0:
        raise SystemExit("slow_link: only root may create network namespaces; use sudo")
    results = measure(options)
    if options.picture:
        options.picture.write_text(picture(results, options.rate))
        print(f"\nwrote {options.picture}")


if __name__ == "__main__":
    main()
