"""Measures codecs: floats encoded and decoded on one core, in cache, compared with a plain copy."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from comparison.contestant import ROOT

#: Bytes of the measured floats. With their encoded blocks, they fit into a core's private cache.
SIZE = 65536
CODECS = ("fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2", "int4", "topk")
WHAT = ("encode", "decode", "fold_coded")
REPETITIONS = 5
LIMIT = 300.0


def program() -> Path | None:
    """Returns the path of the kernel benchmark: from BENCH_KERNELS, or in the build folder."""
    named = os.environ.get("BENCH_KERNELS")
    path = Path(named) if named else ROOT / "build/release/bench/mccl_kernels_bench"
    return path if path.is_file() else None


def measure() -> dict[str, float]:
    """Returns median GB/s by benchmark, such as "encode/int8"; empty without the program."""
    found = program()
    if found is None:
        return {}
    words = [
        str(found),
        f"--benchmark_filter=^(copy|({'|'.join(WHAT)})/[a-z0-9_]*)/{SIZE}$",
        "--benchmark_min_time=0.02",
        f"--benchmark_repetitions={REPETITIONS}",
        "--benchmark_enable_random_interleaving=true",
        "--benchmark_report_aggregates_only=true",
        "--benchmark_format=json",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=LIMIT)
    rows = json.loads(done.stdout)["benchmarks"]
    return {
        row["run_name"].removesuffix(f"/{SIZE}"): row["bytes_per_second"] / 1e9
        for row in rows
        if row["aggregate_name"] == "median"
    }


def lines(rates: dict[str, float]) -> list[str]:
    """Formats each codec's rates, and their share of a copy's rate."""
    if "copy" not in rates:
        return []
    copy = rates["copy"]
    text = [
        f"Codecs on one core, {SIZE >> 10} KiB of f32 in cache, GB/s (and of a plain copy, "
        f"{copy:.0f}):",
        f"  {'':<9}{'encode':>14}{'decode':>14}{'sum of two':>14}",
    ]
    for codec in CODECS:
        cells = [rates.get(f"{what}/{codec}", 0.0) for what in WHAT]
        text.append(f"  {codec:<9}" + "".join(f"{x:>8.1f} ({x / copy:.2f})" for x in cells))
    return text
