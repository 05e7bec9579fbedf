"""Pictures of results: mccl bench --plot."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from launching import program

from mccl.plot import lines_of, size_text


def bench(*words: object, status: int = 0) -> str:
    """Runs the command, checks its exit status, and returns its messages."""
    done = subprocess.run(
        [str(program()), "bench", *map(str, words)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == status, done
    return done.stderr


def row(size: int, time: float, in_place: bool = False) -> dict:
    return {
        "collective": "all_reduce",
        "bytes": size,
        "in_place": in_place,
        "busbw": size / time / 1e3 if size else None,
        "time_us": time,
    }


def test_rows_become_lines_by_call_figure_and_result():
    results = [("a", {"rows": [row(8, 1.0), row(0, 1.0)]}), ("b", {"rows": [row(8, 2.0, True)]})]
    lines = lines_of(results)["all_reduce"]
    assert lines["time_us", "a"] == [(8, 1.0)]
    assert lines["time_us", "b, in place"] == [(8, 2.0)]


@pytest.mark.parametrize("damaged", [{}, {"rows": [{}]}, {"rows": 7}, [], None])
def test_another_file_is_refused(damaged):
    with pytest.raises(ValueError, match="is not a result of"):
        lines_of([("x", damaged)])


@pytest.mark.parametrize(
    ("size", "text"), [(8, "8"), (1024, "1K"), (3 << 20, "3M"), (1 << 31, "2G")]
)
def test_sizes_have_binary_units(size, text):
    assert size_text(size) == text


def test_a_measurement_is_drawn_beside_an_earlier_one(tmp_path: Path):
    quick = ("all_reduce", "--sizes", "8,64K", "--iterations", "5", "--no-bounds")
    earlier, later, picture = (tmp_path / name for name in ("old.json", "new.json", "both.svg"))
    bench(*quick, "--json", earlier)
    assert f"wrote {picture}" in bench(*quick, "--json", later, "--plot", picture, earlier)
    drawn = picture.read_text()
    assert drawn.startswith("<?xml") and len(json.loads(later.read_text())["rows"]) == 4
    other = tmp_path / "both.png"
    bench("--plot", other, later, earlier)
    assert other.read_bytes().startswith(b"\x89PNG")


def test_results_of_one_name_are_distinguished(tmp_path: Path):
    files = [tmp_path / folder / "r.json" for folder in ("before", "after")]
    for file in files:
        file.parent.mkdir()
        file.write_text(json.dumps({"version": "1", "ranks": 2, "rows": [row(8, 1.0)]}))
    picture = tmp_path / "both.svg"
    bench("--plot", picture, *files)
    assert all(name in picture.read_text() for name in ("before", "after"))


def test_impossible_pictures_are_refused(tmp_path: Path):
    assert ".svg, .png or .pdf" in bench("--plot", tmp_path / "a.bmp", status=2)
    assert "barrier has no sizes" in bench("barrier", "--plot", tmp_path / "a.svg", status=2)
    assert "also give --json" in bench("--plot", tmp_path / "a.svg", status=2)
    assert "only --plot reads" in bench(tmp_path / "a.json", status=2)
    assert "No such file" in bench("--plot", tmp_path / "a.svg", tmp_path / "b.json", status=2)
    (tmp_path / "b.json").write_text("{}")
    message = bench("--plot", tmp_path / "a.svg", tmp_path / "b.json", status=2)
    assert "b is not a result" in message
    message = bench("--plot", tmp_path / "none/a.svg", tmp_path / "b.json", status=2)
    assert "give a file that can be written" in message
