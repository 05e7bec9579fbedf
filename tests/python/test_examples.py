"""Runs the examples of the README at a smaller size."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(*command: object, ranks: int = 0, status: int = 0) -> str:
    """Runs a script, under torchrun if `ranks` is not 0, and returns its output."""
    launcher = [sys.executable]
    if ranks:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MCCL_")}
    # Port base 0 selects free ports, so that jobs on one machine do not meet.
    environment |= {"OMP_NUM_THREADS": "1", "MCCL_PORT_BASE": "0"}
    done = subprocess.run(
        [*launcher, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=ROOT,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "script",
    [pytest.param("elastic_digits.py", marks=pytest.mark.long), "elastic_mlx_digits.py"],
)
def test_training_survives_the_death_of_a_rank(script: str):
    """The result must be that of an undisturbed run.

    Two ranks add gradients in another order than three do, so a few of the 359 test images may be
    classified differently.
    """
    pytest.importorskip("sklearn")
    if "mlx" in script:
        pytest.importorskip("mlx.core")
    words = ("launch", "-n", 3, "--max-restarts", 1, "--restart", "failed", EXAMPLES / script)
    output = run("-m", "mccl", *words)
    undisturbed = run("-m", "mccl", *words, "--victim=-1")
    assert ranks_of_epochs(output) == [3] * 4 + [2] + [3] * 15, output
    assert ranks_of_epochs(undisturbed) == [3] * 20, undisturbed
    assert output.count("continues without the dead rank") == 2
    assert "continues without" not in undisturbed, undisturbed
    for each in (output, undisturbed):
        assert "ok    all 3 ranks hold the same weights" in each
        assert "ok    accuracy at least 95%" in each
    assert last_accuracy(output) == pytest.approx(last_accuracy(undisturbed), abs=1), output


def ranks_of_epochs(output: str) -> list[int]:
    """Returns the number of ranks in each epoch of an example."""
    return [int(number) for number in re.findall(r"test accuracy .* ranks +(\d)", output)]


def last_accuracy(output: str) -> float:
    """Returns the accuracy after the last epoch of an example, in percent."""
    return float(re.findall(r"test accuracy +([\d.]+)%", output)[-1])


def load_example(name: str):
    """Loads an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_digits_learn_and_every_check_passes():
    """Uses 3 ranks, whose shares differ in size; `make demo` uses 2."""
    output = run(EXAMPLES / "ddp_digits.py", "--epochs", "8", ranks=3)
    assert output.count("ok  ") == 3
    assert "FAIL" not in output
    assert last_accuracy(output) >= 95
    assert "bit-identical" in output
    assert "total_ops" in output


@pytest.mark.long
def test_digits_run_without_a_launcher():
    output = run(EXAMPLES / "ddp_digits.py", "--epochs", "6")
    assert output.count("ok  ") == 3


@pytest.mark.long
def test_digits_report_a_model_that_has_not_learned():
    output = run(EXAMPLES / "ddp_digits.py", "--baseline", "--epochs", "1", status=1)
    assert "FAIL  test accuracy" in output


def refusal_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, *words: object
) -> str:
    """Returns the error message of an example for a command line that it refuses."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, words)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    with pytest.raises(SystemExit) as ended:
        load_example(name).main()
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("ddp_digits", ("--epochs", -3), "--epochs must be at least 1"),
        ("ddp_digits", ("--global-batch", 0), "--global-batch must be at least 1"),
        (
            "ddp_digits",
            ("--device", "cuda"),
            "--device cuda: torch finds no such device on this machine",
        ),
        ("mixed/train_digits", ("--epochs", 0), "--epochs must be at least 1"),
        ("mixed/train_digits", ("--batch", 0), "--batch must be at least 1"),
        ("slow_link", ("--rate", "fast"), "a rate such as 100mbit, or none; found 'fast'"),
        ("slow_link", ("--rate", "0mbit"), "a rate such as 100mbit, or none; found '0mbit'"),
        ("slow_link", ("--steps", 0), "--steps must be at least 1"),
    ],
)
def test_examples_refuse_impossible_options_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    words: tuple[object, ...],
    expected: str,
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert expected in refusal_of(monkeypatch, capsys, name, *words)


@pytest.mark.parametrize(("batch", "ranks"), [(2, 3), (3, 3)])
def test_mlx_digits_want_an_image_for_each_rank(
    monkeypatch: pytest.MonkeyPatch, batch: int, ranks: int
):
    pytest.importorskip("mlx.core")
    digits = load_example("mlx_digits")
    group = SimpleNamespace(rank=lambda: 0, size=lambda: ranks)
    monkeypatch.setattr(digits.mccl.mlx, "init", lambda: group)
    monkeypatch.setattr(sys, "argv", ["mlx_digits.py", "--global-batch", str(batch)])
    with pytest.raises(SystemExit, match=f"{batch} leaves some of {ranks} ranks without an image"):
        digits.main()


def test_mixed_digits_report_the_required_accuracy():
    words = ("--frameworks", "numpy", "--epochs", 1)
    output = run(EXAMPLES / "mixed/train_digits.py", *words, status=1)
    assert re.search(r"FAIL  accuracy: [\d.]+%, expected 95%", output)


def test_digits_notice_weights_that_differ(monkeypatch: pytest.MonkeyPatch):
    digits = load_example("ddp_digits")
    monkeypatch.setattr(digits.dist, "get_world_size", lambda: 2)

    def gather_with_one_bit_changed(gathered, mine):
        for tensor in gathered:
            tensor.copy_(mine)
        gathered[1][0] ^= 1

    monkeypatch.setattr(digits.dist, "all_gather", gather_with_one_bit_changed)
    assert not digits.all_ranks_equal(torch.zeros(3))


def stats_files(folder: Path, **changes: dict) -> tuple[Path, Path]:
    """Writes two files as ddp_dummy_train.py does, with changes to `baseline` and `ddp`."""
    common = {
        "global_batch": 8, "parameters": 96_000_000, "image_size": 32, "device": "cpu",
        "warmup_steps": 1, "machine": "Linux x86_64, 2 cores",
    }  # fmt: skip
    one = {"kind": "baseline", "world_size": 1, "step_seconds": [0.1, 0.2, 0.4, 0.8]}
    two = {"kind": "ddp", "backend": "mccl", "world_size": 2, "step_seconds": [0.2, 0.4, 0.8, 1.6]}
    paths = folder / "baseline.json", folder / "ddp.json"
    for path, stats in zip(paths, (one, two), strict=True):
        path.write_text(json.dumps(common | stats | changes.get(stats["kind"], {})))
    return paths


def compare(monkeypatch: pytest.MonkeyPatch, baseline: Path, ddp: Path, prefix: object) -> None:
    arguments = ["", "--baseline", baseline, "--ddp", ddp, "-o", prefix]
    monkeypatch.setattr(sys, "argv", [str(argument) for argument in arguments])
    load_example("benchmark_throughput").main()


@pytest.mark.parametrize(
    "differing", ["global_batch", "parameters", "image_size", "device", "warmup_steps"]
)
def test_fault_35_runs_that_were_timed_differently_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differing: str
):
    other = "mps" if differing == "device" else 64
    baseline, ddp = stats_files(tmp_path, ddp={differing: other})
    expected = json.loads(baseline.read_text())[differing]
    with pytest.raises(SystemExit, match=f"{differing} {expected} and {other}"):
        compare(monkeypatch, baseline, ddp, tmp_path / "c")
    assert not (tmp_path / "c.npz").exists()


def test_swapped_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    baseline, ddp = stats_files(tmp_path)
    with pytest.raises(SystemExit, match=r"--baseline .*ddp\.json: expected .* swapped\?"):
        compare(monkeypatch, ddp, baseline, tmp_path / "c")
    with pytest.raises(
        SystemExit, match=r"--ddp .*baseline\.json: expected the stats of a torchrun job"
    ):
        compare(monkeypatch, baseline, baseline, tmp_path / "c")
    assert not list(tmp_path.glob("c*"))


def test_a_folder_that_is_missing_is_found_before_the_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    missing = tmp_path / "missing"
    with pytest.raises(SystemExit, match=r"the folder .*missing does not exist; create it first"):
        compare(monkeypatch, missing / "a.json", missing / "b.json", missing / "c")
    with pytest.raises(SystemExit, match="expected a prefix of file names"):
        compare(monkeypatch, missing / "a.json", missing / "b.json", tmp_path)


def test_the_median_is_one_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    baseline, ddp = stats_files(tmp_path)
    compare(monkeypatch, baseline, ddp, tmp_path / "c")
    printed = capsys.readouterr().out
    # The number of steps is even, so the median is the mean of the two in the middle: 8 samples in
    # 0.3 s.
    assert re.search(r"1 process +26\.67 samples/s", printed)
    assert re.search(r"2 ranks, mccl +13\.33 samples/s", printed)
    assert re.search(r"ratio +0\.50", printed)
    train = load_example("ddp_dummy_train")
    fields = dict.fromkeys(train.Stats.__dataclass_fields__, 0)
    train.report(train.Stats(**fields | json.loads(baseline.read_text())), None)
    assert "median step 300.0 ms, 26.67 samples/s" in capsys.readouterr().out


def test_plots_say_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    baseline, ddp = stats_files(tmp_path)
    compare(monkeypatch, baseline, ddp, tmp_path / "c")
    assert len(drawn) == 2
    for figure in drawn:
        (axes,) = figure.axes
        for part in ("96.0 M parameters", "batch 8", "Linux x86_64, 2 cores", "= 0.50"):
            assert part in axes.get_title()
    steps = [tick for tick in drawn[0].axes[0].get_xticks() if 1 <= tick <= 4]
    assert steps == [int(step) for step in steps] != []


def test_without_matplotlib_there_are_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # makes the import fail
    baseline, ddp = stats_files(tmp_path)
    compare(monkeypatch, baseline, ddp, tmp_path / "c")
    printed = capsys.readouterr().out
    assert "ratio" in printed
    assert "pip install matplotlib" in printed
    assert sorted(path.name for path in tmp_path.glob("c*")) == ["c.npz"]


def options_of(monkeypatch: pytest.MonkeyPatch, *arguments: object, **variables: object):
    """Returns the options that ddp_dummy_train.py reads from its command line and environment."""
    for name in ("RANK", "WORLD_SIZE", "BATCH_SIZE", "TRAIN_STEPS", "MODEL_DEPTH", "SINGLE_GPU"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(sys, "argv", ["ddp_dummy_train.py", *map(str, arguments)])
    return load_example("ddp_dummy_train").parse_arguments()


def test_variables_of_the_earlier_example_stand_for_options(monkeypatch: pytest.MonkeyPatch):
    found = options_of(
        monkeypatch, RANK=0, WORLD_SIZE=2, BATCH_SIZE=16, TRAIN_STEPS=500, MODEL_HIDDEN=96,
        MODEL_DEPTH=2, DDP_BUCKET_MB=50,
    )  # fmt: skip
    assert (found.global_batch, found.steps, found.bucket_mb) == (32, 500, 50)
    assert (found.dim, found.depth, found.baseline) == (96, 2, False)
    given = options_of(monkeypatch, "--global-batch", 4, "--steps", 3, BATCH_SIZE=16, TRAIN_STEPS=9)
    assert (given.global_batch, given.steps) == (4, 3)
    one = options_of(monkeypatch, SINGLE_GPU=1, BATCH_SIZE=16)
    assert (one.baseline, one.global_batch) == (True, 16)
    assert options_of(monkeypatch, "--baseline", BASELINE_BATCH_SIZE=32).global_batch == 32
    with pytest.raises(SystemExit, match="TRAIN_STEPS: expected a whole number; found 'many'"):
        options_of(monkeypatch, TRAIN_STEPS="many")


def test_a_variable_that_means_nothing_here_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    options_of(monkeypatch, NUM_CLASSES=64)
    assert "NUM_CLASSES has no effect on this model" in capsys.readouterr().err


def test_a_baseline_is_not_for_torchrun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        options_of(monkeypatch, "--baseline", RANK=1, WORLD_SIZE=2)
    assert "but torchrun starts 2 of them" in capsys.readouterr().err


def test_where_the_stats_go_is_tried_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        options_of(monkeypatch, "--save-stats", tmp_path / "missing/stats.json")
    assert "stats.json: cannot be written: No such file" in capsys.readouterr().err
    options_of(monkeypatch, "--save-stats", tmp_path / "stats.json")
    assert not list(tmp_path.iterdir())
