"""An MLX program without a mention of MCCL. Each rank prints an element of an all-reduce."""

import sys

import mlx.core as mx

world = mx.distributed.init(strict=True)
total = mx.distributed.all_sum(mx.arange(1000) * (world.rank() + 1))
expected = mx.arange(1000) * (world.size() * (world.size() + 1) // 2)
assert mx.array_equal(total, expected).item()
sys.stdout.write(f"rank {world.rank()} of {world.size()}: {total[1].item()}\n")
