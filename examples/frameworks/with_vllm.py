"""Generates tokens on the CPU with a very small Llama of random weights, which vLLM divides.

Each rank holds a part of every layer (tensor parallelism).
"""

import os
import tempfile

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.platforms import current_platform

import mccl  # noqa: F401

current_platform.dist_backend = "mccl"
# Otherwise vLLM adds the ranks' results in its own shared memory, which needs a single host.
CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _: False
size = int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=128,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
with tempfile.TemporaryDirectory() as folder:
    LlamaForCausalLM(config).save_pretrained(folder)
    model = LLM(
        folder,
        tensor_parallel_size=size,
        distributed_executor_backend="external_launcher",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        kv_cache_memory_bytes=1 << 26,
    )
    prompt = {"prompt_token_ids": [1, 2, 3]}
    sampling = SamplingParams(max_tokens=16, temperature=0, detokenize=False)
    tokens = model.generate([prompt], sampling, use_tqdm=False)[0].outputs[0].token_ids
    if dist.get_rank() == 0:
        print(f"{size} ranks on {dist.get_backend()}: {tokens}")
