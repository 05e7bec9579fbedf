"""Generates text with a model that mlx_lm splits over the ranks (tensor parallelism).

mccl launch -n 2 examples/mlx_generate.py path/to/model
"""

import sys

import mlx.core as mx
from mlx_lm import stream_generate
from mlx_lm.utils import sharded_load

import mccl.mlx

mccl.mlx.install()  # because some functions of mlx_lm use the default group
world = mx.distributed.init(strict=True)
model, tokenizer = sharded_load(sys.argv[1], tensor_group=world)
for answer in stream_generate(model, tokenizer, "the cat sends", max_tokens=20):
    if world.rank() == 0:
        print(answer.text, end="", flush=True)
