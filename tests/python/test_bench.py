import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import compare
import mccl_bench
import psutil
import pytest
from comparison import codecs
from comparison.bounds import cells_needed, check, expand, load_bounds
from comparison.contestant import Command, Contestant, Launch, Setting
from comparison.contestants import CONTESTANTS, PEERS_ALL
from comparison.launch import launch
from comparison.machine import PASS, SOCKETS, TITLES, add_bounds
from comparison.page import write_page
from comparison.results import Key, Results, load
from comparison.run import Plan, Runner
from comparison.sizes import FULL_SIZES, QUICK_SIZES, cells_of, parse_size, show_size
from comparison.steadiness import Steadiness
from comparison.table import notes_of, ratio_of, tables_of
from peers.cells import MAX_CALLS, Cell, Times, figures_of, next_batch

ROOT = Path(__file__).resolve().parents[2]
SMALL = Cell("all_reduce", 8)
BOUND = {
    "name": "small", "contestant": "mccl", "against": ["gloo", "mpich"], "ranks": 2,
    "collective": "all_reduce", "bytes": "8", "at_most": 0.5,
}  # fmt: skip


def results_of(times: dict[str, float], cell: Cell = SMALL) -> Results:
    results = Results({"contestants": {}})
    for name, time in times.items():
        results.add(Key(name, 2, cell), {"time_us": time, "p50_us": time, "p99_us": time})
    return results


class Silence:
    def step(self, words: str) -> None:
        pass


# --- sizes and cells


@pytest.mark.parametrize(
    ("text", "size"),
    [("8", 8), ("64K", 65536), ("1MiB", 1 << 20), ("256 MB", 256 << 20), ("2g", 2 << 30)],
)
def test_sizes_are_read(text: str, size: int):
    assert parse_size(text) == size
    assert parse_size(show_size(size)) == size


@pytest.mark.parametrize("text", ["", "K", "1.5M", "-8", "8 bits"])
def test_invalid_sizes_are_refused(text: str):
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_a_cell_is_read_as_it_is_written():
    cell = Cell("all_gather", 65536)
    assert Cell.parse(str(cell)) == cell
    with pytest.raises(ValueError, match="COLLECTIVE:BYTES"):
        Cell.parse("all_gather")


def test_ranks_share_evenly_what_they_have_parts_of():
    assert Cell("all_reduce", 8).elements(4) == 2
    assert Cell("all_gather", 8).elements(4) == 4
    assert Cell("barrier", 0).elements(4) == 1


def test_a_barrier_has_one_cell():
    cells = cells_of(["all_reduce", "barrier"], [8, 64])
    assert cells == [Cell("all_reduce", 8), Cell("all_reduce", 64), Cell("barrier", 0)]


def test_batches_fill_the_time_and_end():
    assert next_batch(Times(batches=[0.001]), spent=0.0, seconds=0.2) == 10
    assert next_batch(Times(batches=[1e-9]), spent=0.0, seconds=0.2) == MAX_CALLS
    assert next_batch(Times(batches=[0.5]), spent=0.5, seconds=0.2) == 1
    assert next_batch(Times(batches=[0.5] * 3), spent=1.5, seconds=0.2) == 0
    # Calls that take more than two seconds are not repeated.
    assert next_batch(Times(batches=[2.5]), spent=2.5, seconds=0.2) == 0


def test_figures_are_of_batches_and_of_calls():
    figures = figures_of(Times(calls=[1e-6, 3e-6, 9e-6], batches=[2e-6, 4e-6]))
    assert figures == pytest.approx({"time_us": 3, "p50_us": 3, "p99_us": 9, "calls": 3})


# --- results and tables


def test_rounds_have_a_median():
    results = results_of({"mccl": 1.0})
    key = Key("mccl", 2, Cell("all_reduce", 8))
    for time in (5.0, 3.0):
        results.add(key, {"p50_us": time})
    assert results.time_us(*key) == 3.0


def test_rooted_calls_compare_by_the_slowest_ranks_mean():
    results = Results()
    for collective in ("broadcast", "all_gather"):
        cell = Cell(collective, 8)
        results.add(Key("mpich", 2, cell), {"time_us": 4.0, "p50_us": 1.0})
    assert results.time_us("mpich", 2, Cell("broadcast", 8)) == 4.0
    assert results.time_us("mpich", 2, Cell("all_gather", 8)) == 1.0


def test_results_survive_a_file(tmp_path: Path):
    results = results_of({"mccl": 1.5, "gloo": 300.0})
    results.mark_absent("mlx", 4, [Cell("all_reduce", 8)], "not installed")
    results.save(tmp_path / "folder" / "result.json")
    again = load(tmp_path / "folder" / "result.json")
    assert again == results
    (tmp_path / "old.json").write_text('{"format": 0}')
    with pytest.raises(ValueError, match="format 0"):
        load(tmp_path / "old.json")


def test_a_ratio_is_over_the_fastest():
    results = results_of({"mccl": 2.0, "gloo": 300.0, "mpich": 8.0})
    cell = Cell("all_reduce", 8)
    assert ratio_of(results, "mccl", PEERS_ALL, 2, cell) == (0.25, "mpich")
    assert ratio_of(results, "mccl", ["mlx"], 2, cell) is None
    assert ratio_of(results, "mccl-torch", PEERS_ALL, 2, cell) is None


def test_the_table_has_times_ratios_and_gaps():
    results = results_of({"mccl": 2.0, "gloo": 300.0, "mpich": 8.0})
    results.mark_absent("mlx", 2, [Cell("all_reduce", 8)], "no answer within 60 s")
    (table,) = tables_of(results)
    assert table.headers == [
        "size", "MCCL, C++", "Gloo, torch", "MPICH", "MLX ring", "C++ / fastest peer"
    ]  # fmt: skip
    assert table.rows == [["8 B", "2.00", "300", "8.00", "-", "0.25 mpich"]]
    assert table.markdown().splitlines()[-1] == "| 8 B | 2.00 | 300 | 8.00 | - | 0.25 mpich |"
    assert len(table.text().splitlines()) == 3
    assert notes_of(results) == ["MLX ring, 2 ranks: no answer within 60 s (all_reduce 8 B)"]


def test_bounds_are_added_only_where_the_rates_apply():
    results = Results()
    cells = [Cell("all_reduce", 8), Cell("all_reduce", 1 << 20), Cell("broadcast", 1 << 20)]
    rates = {"pass_all_gbs": 8.0, "tcp_both_ways_gbs": 1.0}
    add_bounds(results, "mccl", 2, cells, rates)
    add_bounds(results, "mccl-tcp", 2, cells, rates)
    add_bounds(results, "mccl-tcp", 4, cells, rates)
    assert list(results.rows) == [Key(PASS, 2, cells[1]), Key(SOCKETS, 2, cells[1])]
    assert results.time_us(PASS, 2, cells[1]) == pytest.approx(131.072)


def test_a_page_is_written(tmp_path: Path):
    page = tmp_path / "new" / "page.md"
    pictures = [tmp_path / "new" / "a.png"]
    write_page(page, results_of({"mccl": 2.0, "gloo": 4.0}), [], pictures)
    text = page.read_text()
    assert text.startswith("# MCCL beside its peers\n")
    assert "(a.png)" in text
    assert "| 8 B | 2.00 | 4.00 | 0.50 gloo |" in text


# --- bounds


def test_a_bound_expands():
    entry = BOUND | {"against": "peers", "ranks": [2, 4], "bytes": "every", "transport": "tcp"}
    bounds = expand(entry, [8, 64])
    assert [(b.ranks, b.cell.bytes) for b in bounds] == [(2, 8), (2, 64), (4, 8), (4, 64)]
    assert {b.contestant for b in bounds} == {"mccl-tcp"}
    assert bounds[0].against == PEERS_ALL
    assert cells_needed(bounds)[4]["mlx"] == [Cell("all_reduce", 8), Cell("all_reduce", 64)]


@pytest.mark.parametrize("change", [{"atmost": 1}, {"at_most": None}])
def test_a_bound_with_other_fields_is_refused(change: dict):
    entry = {name: value for name, value in (BOUND | change).items() if value is not None}
    with pytest.raises(ValueError, match="bound 'small'"):
        expand(entry, [8])


def test_the_file_speaks_of_known_contestants():
    bounds = load_bounds(ROOT / "bench" / "bounds.json", QUICK_SIZES)
    known = {*CONTESTANTS, *TITLES}
    assert all({bound.contestant, *bound.against} <= known for bound in bounds)
    assert set(QUICK_SIZES) <= set(FULL_SIZES)


@pytest.mark.parametrize(
    ("times", "holds", "said"),
    [
        ({"mccl": 2.0, "gloo": 100.0, "mpich": 4.0}, True, "0.50 of mpich"),
        ({"mccl": 2.1, "gloo": 100.0, "mpich": 4.0}, False, "0.53 of mpich"),
        ({"mccl": 2.1, "gloo": 100.0}, True, "0.021 of gloo"),
        ({"gloo": 100.0}, False, "unknown"),
    ],
)
def test_bounds_are_checked(times: dict[str, float], holds: bool, said: str):
    (verdict,) = check(expand(BOUND, []), results_of(times))
    assert verdict.holds is holds
    measured = "mccl" in times
    assert verdict.line().startswith("holds" if holds else "BROKEN" if measured else "not measured")
    assert said in verdict.line()


@pytest.mark.parametrize(
    ("time", "word", "holds"),
    [(0.9, "holds", True), (1.4, "not yet", True), (1.6, "BROKEN", False)],
)
def test_a_bound_that_is_not_reached_yet_has_another_until_then(time, word, holds):
    (bound,) = expand(BOUND | {"at_most": 1.0, "until_then": 1.5}, [])
    (verdict,) = check([bound], results_of({"mccl": time, "gloo": 1.0}))
    assert (verdict.word(), verdict.holds) == (word, holds)
    assert ("until then 1.50" in verdict.line()) == (word != "holds")


@pytest.mark.parametrize(("time", "holds"), [(4.9, True), (5.1, False)])
def test_a_bound_may_have_microseconds_on_top(time: float, holds: bool):
    (bound,) = expand(BOUND | {"at_most": 1.0, "plus_us": 3}, [])
    (verdict,) = check([bound], results_of({"mccl": time, "gloo": 2.0}))
    assert verdict.holds is holds
    assert "at most 1.00 + 3 us" in verdict.line()


# --- launching


def python(code: str) -> list[Command]:
    return [Command([sys.executable, "-c", textwrap.dedent(code)])]


def test_a_silent_cell_is_ended_and_named():
    outcome = launch(
        python(
            """
            import subprocess, sys, time
            print('{"begin": "all_reduce:8"}')
            print('{"collective": "all_reduce", "bytes": 8, "p50_us": 1.0}')
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
            print('{"child": %d}' % child.pid)
            print('{"begin": "all_reduce:64"}', flush=True)
            time.sleep(1000)
            """
        ),
        cell_limit=0.5,
    )
    assert outcome.cell == Cell("all_reduce", 64)
    assert outcome.failure == "no answer within 0.5 s"
    assert outcome.lines[0]["p50_us"] == 1.0
    assert not psutil.pid_exists(outcome.lines[1]["child"])


def test_a_failure_is_reported_in_its_own_words():
    outcome = launch(python("raise ValueError('no such ring')"), cell_limit=5)
    assert outcome.failure == "ended with 1: ValueError: no such ring"
    assert outcome.cell is None


# --- rounds

WORKER = """
import sys, time
pace = float(sys.argv[1])
for text in sys.argv[2:]:
    collective, size = text.split(":")
    print('{"begin": "%s"}' % text, flush=True)
    if text == "scatter:64":
        sys.exit("scatter is broken")
    print('{"collective": "%s", "bytes": %s, "time_us": %f, "p50_us": %f}'
          % (collective, size, pace, pace), flush=True)
"""


def contestant(paces: Sequence[str] = ("1.0",), missing: str | None = None) -> Contestant:
    def commands(start: Launch) -> list[Command]:
        argv = [sys.executable, "-c", WORKER, *start.setting.argv, *map(str, start.cells)]
        return [Command(argv)]

    settings = [Setting(f"pace {pace}", (pace,)) for pace in paces]
    return Contestant("gloo", "Gloo", lambda: missing, lambda ranks: settings, commands)


def run_rounds(one: Contestant, cells: Sequence[Cell], rounds: int = 2) -> Results:
    results = Results()
    plan = Plan([one], {2: {one.name: list(cells)}}, rounds, seconds=0.01, limit=20)
    Runner(plan, results, Silence(), Steadiness(look=lambda: None)).run()
    return results


class Machine:
    """A fake clock, and fake distances between cores in ns, one per look; the last one repeats."""

    def __init__(self, *distances: float) -> None:
        self.distances = list(distances)
        self.time = 0.0

    def look(self) -> float:
        return self.distances.pop(0) if len(self.distances) > 1 else self.distances[0]

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def steadiness(self, usual: float = 100.0) -> Steadiness:
        return Steadiness(self.look, self.sleep, lambda: self.time, usual)


def test_the_usual_distance_is_the_median():
    machine = Machine(*[50.0] * 5, *[110.0] * 6, *[500.0] * 4)
    steadiness = machine.steadiness()
    steadiness.begin()
    assert steadiness.usual == 110.0


@pytest.mark.parametrize(
    ("distances", "turns", "unsteady"),
    [
        ([100.0, 120.0], 1, 0),  # measured before and after the turn
        ([100.0, 500.0, 100.0, 90.0], 2, 0),  # changes during the first turn
        ([500.0, 50.0, 100.0, 100.0], 1, 0),  # waits for the usual distance
        ([100.0, 50.0, 100.0, 50.0, 100.0, 50.0], 3, 1),
    ],
)
def test_a_turn_counts_when_the_cores_are_as_far_apart_as_usual(distances, turns, unsteady):
    steadiness = Machine(*distances).steadiness()
    made = iter(range(1, 9))
    assert steadiness.run(lambda: next(made)) == turns
    assert (steadiness.repeated, steadiness.unsteady) == (turns - 1, unsteady)
    assert "100 ns" in steadiness.words()


def test_cores_that_stay_apart_delay_a_turn_by_less_than_a_minute():
    machine = Machine(500.0)
    steadiness = machine.steadiness()
    assert steadiness.run(lambda: "found") == "found"
    assert steadiness.unsteady == 1
    assert machine.time < 60


def test_without_distances_every_turn_counts():
    steadiness = Steadiness(look=lambda: None)
    steadiness.begin()
    assert steadiness.run(lambda: 7) == 7
    assert steadiness.words() is None


def test_a_failure_costs_the_larger_cells_of_its_collective():
    cells = cells_of(["scatter", "gather"], [8, 64, 512])
    results = run_rounds(contestant(), cells)
    reasons = {key.cell: row.absent for key, row in results.rows.items()}
    lost = [cell for cell in cells if reasons[cell] is not None]
    assert lost == [Cell("scatter", 64), Cell("scatter", 512)]
    assert reasons[lost[0]] == "ended with 1: scatter is broken"
    kept = [results.rows[Key("gloo", 2, cell)].rounds for cell in cells if cell not in lost]
    assert all(len(rounds) == 2 for rounds in kept)


def test_slow_cells_are_measured_once():
    results = run_rounds(contestant(["2100000.0"]), [Cell("gather", 8)], rounds=3)
    assert len(results.rows[Key("gloo", 2, Cell("gather", 8))].rounds) == 1


def test_the_fastest_setting_is_used_and_reported():
    results = run_rounds(contestant(["5.0", "2.0"]), [Cell("gather", 8)])
    assert results.time_us("gloo", 2, Cell("gather", 8)) == 2.0
    words = results.about["contestants"]["gloo"]["settings"]["2"]
    assert words == "pace 2.0; faster here than: pace 5.0"


def test_missing_contestants_are_named():
    results = run_rounds(contestant(missing="not installed: run `make peers`"), [Cell("gather", 8)])
    assert notes_of(results) == [
        "Gloo, torch, 2 ranks: not installed: run `make peers` (gather 8 B)"
    ]


PROCESS_PER_RANK = ("gloo", "mccl-torch", "mccl-numpy", "mlx", "mccl-mlx")


def test_contestants_start_as_many_processes_as_they_should(tmp_path: Path):
    for name, one in CONTESTANTS.items():
        for setting in one.settings(4):
            start = Launch(4, 0.1, [Cell("all_reduce", 8)], setting, tmp_path)
            commands = one.commands(start)
            assert len(commands) == (4 if name.startswith(PROCESS_PER_RANK) else 1)
            assert commands[0].argv[-1] == "all_reduce:8"


# --- the `mccl bench` program


def test_the_rows_of_mccl_bench_are_found():
    row = {"collective": "all_reduce", "bytes": 8, "in_place": False, "time_us": 1.0}
    rows = [row, row | {"in_place": True, "time_us": 2.0}]
    rows += [row | {"collective": "all_gather", "bytes": 16}]
    found = mccl_bench.pick_row(rows, Cell("all_reduce", 8), 4)
    assert found is not None
    assert found["time_us"] == 2.0
    assert mccl_bench.pick_row(rows, Cell("all_gather", 8), 4) == rows[2]
    assert mccl_bench.pick_row(rows, Cell("all_gather", 64), 4) is None


def test_mccl_bench_is_asked_once_per_collective(tmp_path: Path):
    program = tmp_path / "mccl"
    program.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != --json ]; do shift; done\n'
        'cat > "$2" <<END\n'
        '{"bounds": {"pass_all_gbs": 8}, "rows": [{"collective": "broadcast", "bytes": 8,\n'
        '"in_place": true, "time_us": 3, "p50_us": 2, "p99_us": 4, "iterations": 7}]}\n'
        "END\n"
    )
    program.chmod(0o755)
    script = ROOT / "bench" / "peers" / "mccl_bench.py"
    done = subprocess.run(
        [sys.executable, script, "--program", program, "broadcast:8", "broadcast:64"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"begin": "broadcast:8", "cells": 2},
        {"collective": "broadcast", "bytes": 8, "calls": 7, "time_us": 3, "p50_us": 2, "p99_us": 4},
        {"collective": "broadcast", "bytes": 64, "absent": "`mccl bench` reported no row"},
        {"bounds": {"pass_all_gbs": 8}},
    ]


# --- complete comparisons


@pytest.mark.long
def test_torch_backends_are_compared(tmp_path: Path):
    result = tmp_path / "result.json"
    done = subprocess.run(
        [
            *(sys.executable, ROOT / "bench" / "compare.py", "--contestants", "mccl-torch,gloo"),
            *("--ranks", "2", "--collectives", "all_reduce,broadcast", "--sizes", "8,4K"),
            *("--rounds", "1", "--seconds", "0.01", "--extras", "none"),
            *("--json", result, "--plots", tmp_path),
        ],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "torch / Gloo" in done.stdout
    results = load(result)
    assert len(results.rows) == 8
    assert all(row.absent is None and len(row.rounds) == 1 for row in results.rows.values())
    assert (tmp_path / "times-2-ranks.png").read_bytes().startswith(b"\x89PNG")


def test_checking_an_earlier_run_fails_where_a_bound_is_broken(tmp_path: Path):
    path = tmp_path / "result.json"
    results_of({"mccl": 9.0, "openmpi": 1.0}).save(path)
    words = [sys.executable, ROOT / "bench" / "compare.py", "--from", path]
    done = subprocess.run([*words, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "small, shared memory (mccl, 2 ranks, all_reduce 8 B): 9.00 of" in done.stdout
    assert "BROKEN" in done.stdout
    shown = subprocess.run(words, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--from", "nowhere.json"], "argument --from: nowhere.json: No such file or directory"),
        (["--from", __file__], "expected a file written by --json"),
        (["--ranks", "0"], "argument --ranks: expected numbers of ranks such as 2,4; found '0'"),
        (["--ranks", "2,x"], "argument --ranks: expected numbers of ranks such as 2,4; found"),
        (["--sizes", "8,1X"], "argument --sizes: '1X' is not a size such as 8, 64K or 16MiB"),
    ],
)
def test_impossible_requests_are_refused_before_the_measurement(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        compare.parse_arguments(words)
    assert expected in capsys.readouterr().err


# --- codecs


def test_codecs_are_shown_beside_a_copy():
    rates = {"copy": 100.0, "encode/int8": 50.0, "decode/int8": 60.0, "fold_coded/int8": 25.0}
    title, _, *rows = codecs.lines(rates)
    row = next(row for row in rows if "int8" in row)
    assert "plain copy, 100" in title
    assert row.split() == ["int8", "50.0", "(0.50)", "60.0", "(0.60)", "25.0", "(0.25)"]
    assert codecs.lines({}) == []
