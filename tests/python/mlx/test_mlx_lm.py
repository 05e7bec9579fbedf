"""mlx_lm with small models split over ranks. Weights are random, the tokenizer is made here."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import mccl.mlx

# Importing mlx_lm takes seconds, and every process that runs tests reads this file.
if importlib.util.find_spec("mlx_lm") is None:
    pytest.skip("mlx_lm is not installed", allow_module_level=True)

pytestmark = pytest.mark.parametrize(
    "ranks",
    [2, *(pytest.param(size, marks=pytest.mark.long) for size in (4, 8))],
    indirect=True,
    scope="module",
    ids="{} ranks".format,
)

#: Modules that mlx_lm imports. mlx_lm itself makes a stream of MLX, and so a thread, which a fork
#: would lose.
IMPORTED = ("transformers", "transformers.models.auto.tokenization_auto")

WORDS = ["the", "a", "cat", "dog", "ring", "rank", "sum", "of", "all", "sends", "waits", "and"]
PROMPT = "the cat sends a ring and"

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "vocab_size": 32,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
    "bos_token_id": 0,
}


def make_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: i for i, word in enumerate(["<s>", "</s>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "chat_template": "{% for m in messages %}{{ m['content'] }} {% endfor %}",
            }
        )
    )


#: A model that can also be split into stages.
STAGES = CONFIG | {
    "model_type": "ministral3",
    "num_hidden_layers": 8,
    "head_dim": 8,
    "rope_parameters": {
        "rope_theta": 10000.0,
        "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 128,
    },
}


def make_weights(folder: Path, config: dict = CONFIG) -> None:

    from mlx.utils import tree_flatten

    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(11)
    with mx.stream(mx.cpu):
        model = module.Model(module.ModelArgs.from_dict(config))
        weights = {
            name: mx.random.normal(value.shape) * 0.3
            for name, value in tree_flatten(model.parameters())
        }
        mx.save_safetensors(str(folder / "model.safetensors"), weights)
    index = {"weight_map": dict.fromkeys(weights, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def make_model(folder: Path, config: dict = CONFIG) -> Path:
    """Writes the files that `mlx_lm` loads, as if they had been downloaded."""
    (folder / "config.json").write_text(json.dumps(config))
    make_tokenizer(folder)
    make_weights(folder, config)
    return folder


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def stages_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("ministral"), STAGES)


def check_tensor_parallel(folder: str) -> list[int]:
    from mlx_lm import load, stream_generate
    from mlx_lm.utils import sharded_load

    mccl.mlx.install()
    group = mx.distributed.init(strict=True)
    model, tokenizer = sharded_load(folder, None, group)
    alone, _ = load(folder)
    share = CONFIG["hidden_size"] // group.size()
    assert model.model.layers[0].self_attn.q_proj.weight.shape == (share, CONFIG["hidden_size"])

    tokens = tokenizer.encode(PROMPT)
    logits = model(mx.array([tokens]))
    expected = alone(mx.array([tokens]))
    difference = mx.abs(logits - expected).max().item()
    assert difference <= 1e-4, difference
    assert mx.abs(expected).max().item() > 0.5

    sharded = [r.token for r in stream_generate(model, tokenizer, PROMPT, max_tokens=12)]
    single = [r.token for r in stream_generate(alone, tokenizer, PROMPT, max_tokens=12)]
    assert sharded == single
    return sharded


def test_a_tensor_parallel_llama_matches_one_process(ranks, model_folder: Path):
    answers = ranks.run(check_tensor_parallel, str(model_folder))
    assert len(answers[0]) >= 1
    assert all(answer == answers[0] for answer in answers)


def check_stages(folder: str) -> list[int]:
    from mlx_lm import load, stream_generate
    from mlx_lm.utils import sharded_load

    mccl.mlx.install()
    group = mx.distributed.init(strict=True)
    model, tokenizer = sharded_load(folder, group, None)
    alone, _ = load(folder)
    assert len(model.model.pipeline_layers) == STAGES["num_hidden_layers"] // group.size()
    staged = [r.token for r in stream_generate(model, tokenizer, PROMPT, max_tokens=12)]
    single = [r.token for r in stream_generate(alone, tokenizer, PROMPT, max_tokens=12)]
    assert staged == single
    return staged


def test_a_model_in_stages_matches_one_process(ranks, stages_folder: Path):
    answers = ranks.run(check_stages, str(stages_folder))
    assert len(answers[0]) >= 1
    assert all(answer == answers[0] for answer in answers)


def check_pipeline() -> None:
    """A model is split into stages, and activations are sent from rank to rank, as in mlx_lm."""
    mccl.mlx.install()
    group = mx.distributed.init(strict=True)
    rank, size = group.rank(), group.size()
    mx.random.seed(2)
    layers = [mx.random.normal((8, 8)) * 0.4 for _ in range(size)]
    x = mx.random.normal((3, 8))
    for step in range(5):
        h = x + step
        if rank > 0:
            h = mx.distributed.recv_like(h, rank - 1)
        h = mx.tanh(h @ layers[rank])
        if rank < size - 1:
            h = mx.distributed.send(h, rank + 1)
        # All ranks receive the result of the last stage.
        result = mx.distributed.all_gather(h)[-3:]
        expected = x + step
        for layer in layers:
            expected = mx.tanh(expected @ layer)
        assert np.allclose(np.array(result), np.array(expected), atol=1e-5)


def test_a_pipeline_of_stages(ranks):
    ranks.run(check_pipeline)
