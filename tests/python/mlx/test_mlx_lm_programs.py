"""Programs of mlx_lm, unchanged, on two ranks that `mccl launch --mlx` starts."""

from __future__ import annotations

import filecmp
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import mlx.core as mx
import pytest
from free_port import free_port
from launching import environment, heed_signals, program
from test_mlx_lm import PROMPT, STAGES, WORDS, make_model

PATIENCE = 300


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can be split by tensors or into stages."""
    return make_model(tmp_path_factory.mktemp("ministral"), STAGES)


def start(
    ranks: int, *words: object, by: tuple = ("--", "-m", "mlx_lm"), **options: object
) -> subprocess.Popen:
    launch = (program(), "launch", "-n", ranks, "--no-prefix", "--python", sys.executable, "--mlx")
    return subprocess.Popen(
        [str(word) for word in (*launch, *by, *words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(HF_HUB_OFFLINE="1", TERM="dumb", NO_COLOR="1", OMP_NUM_THREADS="1"),
        preexec_fn=heed_signals,
        **options,
    )


def run(ranks: int, *words: object, text: str = "", by: tuple = ("--", "-m", "mlx_lm")) -> str:
    job = start(ranks, *words, by=by)
    output, errors = job.communicate(text, timeout=PATIENCE)
    assert job.returncode == 0, output + errors
    return output


def chat(ranks: int, model: Path, *flags: str) -> str:
    """Returns the model's answer, which is the only line made up of words that it knows."""
    words = ("chat", "--model", model, "--max-tokens", 8, "--temp", 0, *flags)
    output = run(ranks, *words, text=f"{PROMPT}\nq\n")
    answers = [line.split() for line in output.splitlines()]
    [answer] = [words for words in answers if words and set(words) <= {*WORDS, "<s>", "<unk>"}]
    return " ".join(answer)


@pytest.mark.long
def test_chat_with_the_model_cut_either_way(model: Path):
    alone = chat(1, model)
    assert len(alone.split()) > 1
    assert chat(2, model) == alone
    assert chat(2, model, "--pipeline") == alone


def adapters(ranks: int, model: Path, data: Path, folder: Path) -> dict[str, mx.array]:
    run(
        ranks, "lora", "--train", "--model", model, "--data", data, "--adapter-path", folder,
        "--iters", 4, "--batch-size", 4, "--num-layers", 2, "--val-batches", 1,
        "--steps-per-report", 2, "--max-seq-length", 64, "--learning-rate", 0.01,
    )  # fmt: skip
    return mx.load(str(folder / "adapters.safetensors"))


@pytest.mark.long
def test_lora_trains_as_one_process_does(model: Path, tmp_path: Path):
    """Rows of equal length have equal weight, so the mean of means is the overall mean."""
    data = tmp_path / "data"
    data.mkdir()
    count = len(WORDS)
    rows = [" ".join(WORDS[i * k % count] for k in range(1, 13)) for i in range(1, 17)]
    for name in ("train", "valid", "test"):
        (data / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": r}) for r in rows))
    alone = adapters(1, model, data, tmp_path / "one")
    shared = adapters(2, model, data, tmp_path / "two")
    assert alone.keys() == shared.keys()
    for name, weight in alone.items():
        assert mx.abs(shared[name] - weight).max().item() < 1e-3, name
    assert max(mx.abs(weight).max().item() for weight in alone.values()) > 0.01


def ask(port: int) -> dict:
    body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def answers_of_server(ranks: int, model: Path) -> list[str]:
    port = free_port()
    job = start(ranks, "server", "--model", model, "--port", port)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < deadline
            try:
                return [ask(port)["choices"][0]["text"] for _ in range(2)]
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)  # the server does not listen yet
    finally:
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=PATIENCE)


@pytest.mark.long
def test_a_server_answers_as_one_process_does(model: Path):
    alone = answers_of_server(1, model)
    assert len(alone[0].split()) > 1
    assert answers_of_server(2, model) == alone


@pytest.fixture
def files(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "large").write_bytes(os.urandom(3_000_001))
    (source / "inner/small").write_text("a line\n")
    return source


def are_copied(source: Path, copy: Path) -> bool:
    names = ["large", "inner/small"]
    return filecmp.cmpfiles(source, copy, names, shallow=False) == (names, [], [])


@pytest.mark.long
@pytest.mark.parametrize("by", [("--", "-m", "mlx_lm", "share"), ("mlx_lm.share",)])
def test_files_are_shared(files: Path, tmp_path: Path, by: tuple[str, ...]):
    copy = tmp_path / "copy"
    run(2, "--path", files, "--dst", copy, "--tmpdir", tmp_path, by=by)
    assert are_copied(files, copy)


@pytest.mark.long
@pytest.mark.parametrize("launched", [True, False])
def test_files_are_shared_with_the_hosts_of_a_hostfile(files: Path, tmp_path: Path, launched: bool):
    """The program itself starts the ranks, with MLX's launcher."""
    hosts = [{"ssh": name, "ips": ["127.0.0.1"]} for name in ("127.0.0.1", "localhost")]
    hostfile, copy = tmp_path / "hosts.json", tmp_path / "copy"
    hostfile.write_text(json.dumps({"backend": "ring", "hosts": hosts}))
    words = ("--hostfile", hostfile, "--path", files, "--dst", copy, "--tmpdir", tmp_path)
    if launched:
        run(1, *words, by=("mlx_lm.share",))
    else:
        script = Path(sys.executable).parent / "mlx_lm.share"
        command = [sys.executable, str(script), *map(str, words)]
        told = environment(MCCL_MLX="1", MCCL_LOG_LEVEL="INFO")
        done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        assert "[mccl rank 1]" in done.stderr
    assert are_copied(files, copy)
