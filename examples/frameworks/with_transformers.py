"""Trains a very small GPT-2 on the CPU with the Trainer of Transformers."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import mccl  # noqa: F401

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        ddp_backend="mccl",
        use_cpu=True,
        max_steps=20,
        per_device_train_batch_size=4,
        learning_rate=0.01,
        save_strategy="no",
        report_to=[],
    )
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=16)
    line = torch.arange(16)
    rows = [{"input_ids": line + i, "labels": line + i} for i in range(48)]
    result = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=rows).train()
    if arguments.process_index == 0:
        print(
            f"{arguments.world_size} ranks on {torch.distributed.get_backend()}: "
            f"loss {result.training_loss:.4f}"
        )
