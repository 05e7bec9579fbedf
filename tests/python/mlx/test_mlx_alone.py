"""Processes for which no group can be made are alone, or fail if a group was requested."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlx_processes import SUM, finish, ring_environments, run, start


def test_without_a_job_every_operation_is_a_no_op():
    code = """
import pytest
group = mccl.mlx.init()
assert (group.rank(), group.size()) == (0, 1)
assert mccl.mlx.init() is group
x = mx.arange(6).reshape(2, 3)
for call in ("all_sum", "all_max", "all_min", "all_gather", "sum_scatter"):
    assert mx.array_equal(getattr(mx.distributed, call)(x, group=group), x).item(), call
for call in ("all_sum", "all_mean", "broadcast", "reduce", "all_gather", "sum_scatter", "gather",
             "scatter", "all_to_all"):
    assert mx.array_equal(getattr(mccl.mlx, call)(x), x).item(), call
mccl.mlx.barrier()
grads = {"a": x, "b": [x]}
assert mccl.mlx.average_gradients(grads) is grads
with pytest.raises(ValueError):
    mx.distributed.send(x, 1, group=group)
with pytest.raises(ValueError):
    mx.distributed.recv((2,), mx.int32, 1, group=group)
with pytest.raises(RuntimeError, match="cannot be split"):
    group.split(0)
"""
    _, errors = run(code)
    # No group was requested, so this is logged as information and not as a warning.
    assert "WARNING" not in errors
    assert "INFO this process is alone" in errors


def test_strict_without_a_job_says_what_each_backend_misses():
    code = "mccl.mlx.init(strict=True)"
    _, errors = run(code, status=1)
    last = errors.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: no group can be made: ring: neither MLX_RANK nor")
    for name in ("mccl: neither MCCL_RANK", "jaccl: neither", "nccl: neither", "mpi: this process"):
        assert name in last


@pytest.mark.parametrize("backend", ["ring", "jaccl", "nccl", "mccl", "mpi"])
def test_a_named_backend_without_its_variables_is_alone_and_warns(backend: str):
    code = f"""
group = mccl.mlx.init(backend="{backend}")
assert group.size() == 1
assert mccl.mlx.init(False, "{backend}") is group
try:
    mccl.mlx.init(True, "{backend}")
except RuntimeError as error:
    print(error)
"""
    output, errors = run(code)
    assert errors.count("WARNING this process is alone in its group") == 1
    reason = "this process was not started by" if backend == "mpi" else "neither"
    assert f"{backend}: {reason}" in errors
    assert f"no group can be made: {backend}: {reason}" in output


@pytest.mark.parametrize(
    ("backend", "environment", "expected"),
    [
        ("any", {"MLX_RANK": "0"}, "ring: MLX_RANK is set, but MLX_HOSTFILE is not"),
        ("any", {"MCCL_RANK": "0"}, "MCCL_WORLD_SIZE is not"),
        ("any", {"RANK": "0"}, "RANK (torchrun) without WORLD_SIZE"),
        ("any", {"MLX_RANK": "0", "MLX_HOSTFILE": "/nowhere"}, "cannot be read"),
        ("ring", {"MLX_RANK": "0", "MLX_HOSTFILE": "/nowhere"}, "cannot be read"),
        ("any", {"MLX_IBV_DEVICES": "d.json", "MLX_RANK": "0"}, "MLX_JACCL_COORDINATOR is not"),
        ("any", {"NCCL_HOST_IP": "a", "MLX_RANK": "0"}, "MLX_WORLD_SIZE and NCCL_PORT are not"),
        (
            "mccl",
            {"MCCL_RANK": "2", "MCCL_WORLD_SIZE": "2", "MCCL_ROOT": "127.0.0.1:1"},
            "rank 2, ",
        ),
    ],
)
@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_group_that_is_asked_for_and_cannot_be_made_raises(
    strict: bool, backend: str, environment: dict, expected: str
):
    code = f"""
for _ in range(2):
    try:
        mccl.mlx.init({strict}, "{backend}")
    except RuntimeError as error:
        print(error)
"""
    output, errors = run(code, environment)
    assert output.count("no group can be made: ") == 2
    assert output.count(expected) == 2
    assert "alone" not in errors


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.long)])
def test_missing_ranks_are_an_error_in_bounded_time(tmp_path: Path, strict: bool):
    for environment in ring_environments(tmp_path, 2):
        environment["MCCL_CONNECT_TIMEOUT"] = "1"
        _, errors = run(f"mccl.mlx.init({strict})", environment, status=1)
        assert "RuntimeError: no group can be made: ring: " in errors


def test_operations_raise_too_where_their_group_cannot_be_made(tmp_path: Path):
    code = "mccl.mlx.install()\nprint(mx.distributed.all_sum(mx.ones(2)))"
    output, errors = run(code, {"MLX_RANK": "1", "MLX_HOSTFILE": "/nowhere"}, status=1)
    assert output == ""
    assert (
        "RuntimeError: no group can be made: ring: MLX_HOSTFILE /nowhere cannot be read" in errors
    )


def test_a_failed_init_does_not_hide_a_later_success(tmp_path: Path):
    code = f"""
assert mccl.mlx.init("ring").size() == 1
alone = mccl.mlx.init()
assert alone.size() == 1 and mccl.mlx.init() is alone
os.environ.update(ENVIRONMENT)
group = mccl.mlx.init()
assert group.size() == 2 and mccl.mlx.init(True, "ring") is group
{SUM}
"""
    processes = [
        start(code.replace("ENVIRONMENT", repr(each)), {})
        for each in ring_environments(tmp_path, 2)
    ]
    for process in processes:
        output, _ = finish(process)
        assert output.split() == ["3", "2"]


def test_a_process_that_is_alone_looks_once():
    code = """
from mccl import config
looks = []
resolved = config.resolved_settings
config.resolved_settings = lambda: looks.append(1) or resolved()
mccl.mlx.install()
for _ in range(100):
    mx.distributed.init()
    mx.distributed.all_sum(mx.ones(2))
assert len(looks) == 1, len(looks)
os.environ["MLX_METAL_FAST_SYNCH"] = "1"
mx.distributed.all_sum(mx.ones(2))
assert len(looks) == 2, len(looks)
import mccl
mccl.init(log_level="ERROR")
mx.distributed.init()
assert len(looks) == 3, len(looks)
"""
    run(code)


def test_a_blank_hostfile_is_a_job_of_one(tmp_path: Path):
    """`mlx.launch -n 1` writes such a hostfile."""
    blank = tmp_path / "blank"
    blank.write_text("\n")
    code = "group = mccl.mlx.init(True, 'ring')\nprint(group.size(), mccl.mlx.init() is group)"
    output, errors = run(code, {"MLX_RANK": "0", "MLX_HOSTFILE": str(blank)})
    assert output.split() == ["1", "True"]
    assert "WARNING" not in errors


def test_an_unknown_backend_is_an_error_even_if_not_strict():
    _, errors = run("mccl.mlx.init('gloo')", status=1)
    assert "ValueError: backend 'gloo': expected one of any, ring, jaccl" in errors


def test_a_misspelt_setting_is_an_error_even_if_not_strict():
    _, errors = run("mccl.mlx.init()", {"MCCL_RNK": "0"}, status=1)
    assert "InvalidArgument: " in errors
    assert "MCCL_RANK" in errors
