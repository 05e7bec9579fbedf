"""The `mccl` program as users run it: exit statuses, tables, files, and no leftover processes."""

import csv
import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from launching import ROOT, environment, heed_signals, program

COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather",
    "scatter", "sendrecv", "barrier",
)  # fmt: skip
QUICK = ("--seconds", "0.001", "--warmup", "1")
TINY = ("--no-bounds", *QUICK, "--sizes")
PATIENCE = 60


def run(*arguments: object, status: int = 0, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs the program until it exits, and checks its exit status."""
    done = subprocess.run(
        [program(), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(**settings),
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture
def endless():
    """A benchmark that would run for minutes, whose ranks have met; yields it with its ranks."""
    flags = ("--ranks", "3", "--no-bounds", "--sizes", "8", "--iterations", "10000000")
    started = subprocess.Popen(
        [program(), "bench", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=heed_signals,
    )
    ranks = []
    try:
        assert started.stdout.readline().startswith("# mccl")
        ranks = ranks_of(started)
        yield started, ranks
    finally:
        for rank in filter(runs, ranks):
            rank.kill()
        started.kill()
        started.communicate(timeout=PATIENCE)


def ranks_of(started: subprocess.Popen) -> list[psutil.Process]:
    """Returns the children that are ranks, in the order of their ranks."""
    places = {child: child.environ() for child in psutil.Process(started.pid).children()}
    ranks = [child for child, variables in places.items() if "MCCL_RANK" in variables]
    return sorted(ranks, key=lambda rank: int(places[rank]["MCCL_RANK"]))


def runs(process: psutil.Process) -> bool:
    """Returns whether the process runs. A zombie does not count."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_without_arguments_the_program_prints_its_help():
    done = run()
    assert "bench" in done.stdout
    assert done.stderr == ""


def test_the_version_is_that_of_the_build():
    version = re.search(r"project\(mccl VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert run("--version").stdout == f"mccl {version}\n"


def test_help_shows_every_collective_and_an_example():
    text = run("bench", "--help").stdout
    assert all(name in text for name in COLLECTIVES)
    assert "mccl bench all --ranks 4" in text


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_collective_is_correct(ranks: int, tmp_path: Path):
    file = tmp_path / "result.json"
    done = run("bench", "all", "--ranks", ranks, *TINY, "8,4K", "--root", 1, "--json", file)
    result = json.loads(file.read_text())
    assert (result["ranks"], result["transport"], result["bounds"]) == (ranks, "auto", None)
    assert {row["collective"] for row in result["rows"]} == set(COLLECTIVES)
    for row in result["rows"]:
        assert row["wrong"] == (None if row["collective"] == "barrier" else 0), row
        assert row["time_us"] > 0
        assert row["p99_us"] >= row["p50_us"] > 0
        assert row["iterations"] >= 5
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(lines) == 2 * 9 + 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("plan", "all_reduce"),
        ("launch", "--dry-run", "true"),
        ("bench", "barrier", "-n", "1", "--no-bounds", *QUICK),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_full_disk_is_a_message_and_a_failure(arguments: tuple[str, ...]):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [program(), *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            env=environment(),
        )
    assert done.returncode == 1
    assert "cannot write standard output: No space left on device" in done.stderr


def test_a_closed_output_is_a_failure_and_no_file_of_the_programs_own():
    command = f'"{program()}" bench barrier -n 1 --no-bounds {" ".join(QUICK)} >&-'
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        env=environment(),
    )
    assert done.returncode == 1
    assert "cannot write standard output: Bad file descriptor" in done.stderr


def test_a_report_on_a_full_disk_is_named():
    for flags in (("plan", "all_reduce"), ("bench", "barrier", "-n", "1", "--no-bounds", *QUICK)):
        done = run(*flags, "--json", "/dev/full", status=1)
        assert "/dev/full" in done.stderr
        assert "No space left on device" in done.stderr


def test_overlap_is_measured_for_each_half_of_a_row(tmp_path):
    file = tmp_path / "result.json"
    calls = ("sendrecv", "all_gather", "barrier")
    run("bench", *calls, *TINY, "4K", "--overlap", "--json", file)
    rows = json.loads(file.read_text())["rows"]
    measured = [row["collective"] for row in rows if row["hidden"] is not None]
    assert measured == ["sendrecv", "all_gather", "all_gather"]
    assert all(row["overlap_us"] > 0 for row in rows if row["collective"] != "barrier")


def test_bandwidths_follow_from_the_time(tmp_path: Path):
    file = tmp_path / "result.json"
    run("bench", "all_reduce", "all_gather", "reduce", "--ranks", 3, *TINY, "12K", "--json", file)
    factors = {"all_reduce": 4 / 3, "all_gather": 2 / 3, "reduce": 1}
    rows = json.loads(file.read_text())["rows"]
    assert [row["in_place"] for row in rows] == [False, True] * 3
    for row in rows:
        assert row["bytes"] == 12288
        assert row["algbw"] == pytest.approx(12288 / row["time_us"] / 1e3)
        assert row["busbw"] == pytest.approx(row["algbw"] * factors[row["collective"]])


def test_a_group_may_have_one_rank():
    assert "sendrecv" not in run("bench", "all", "--ranks", 1, *TINY, "64").stdout


@pytest.mark.parametrize(
    ("dtype", "op"), [("bf16", "sum"), ("f16", "avg"), ("i8", "max"), ("c64", "premul_sum")]
)
def test_types_and_reductions(dtype: str, op: str):
    run("bench", "all_reduce", "--ranks", 3, "--dtype", dtype, "--op", op, *TINY, "1000")


def test_the_requested_transport_and_algorithm_are_used(tmp_path: Path):
    file = tmp_path / "result.json"
    run("bench", "--transport", "tcp", "--algorithm", "ring", *TINY, "64K", "--json", file)
    result = json.loads(file.read_text())
    assert (result["transport"], result["algorithm"]) == ("tcp", "ring")


def test_the_bounds_of_the_machine(tmp_path: Path):
    file = tmp_path / "result.json"
    done = run("bench", "barrier", *QUICK, "--json", file)
    bounds = json.loads(file.read_text())["bounds"]
    assert len(bounds) == 7
    assert all(value > 0 for value in bounds.values())
    assert "TCP on loopback, both ways at once" in done.stdout


def test_the_output_names_the_algorithm(tmp_path: Path):
    file = tmp_path / "rows.json"
    run(
        "bench",
        "all_reduce",
        "--transport",
        "tcp",
        "--algorithm",
        "ring",
        *TINY,
        "64K",
        "--json",
        file,
    )
    assert {row["algorithm"] for row in json.loads(file.read_text())["rows"]} == {"ring"}
    done = run(
        "bench", "all_reduce", "sendrecv", "--transport", "tcp", *TINY, "64K", "--json", file
    )
    told = {(r["collective"], r["algorithm"]) for r in json.loads(file.read_text())["rows"]}
    assert len(told) == 2 and ("sendrecv", "messages") in told and ("all_reduce", "") not in told
    assert done.stdout.count(dict(told)["all_reduce"] + "\n") == 1


def test_an_algorithm_that_does_not_support_a_call_is_an_error():
    done = run("bench", "all_reduce", "scatter", "--algorithm", "ring", *TINY, "64K", status=1)
    assert "--algorithm ring does not support scatter of 64K" in done.stderr
    assert "# all_reduce" in done.stdout and " ring\n" in done.stdout


def test_csv_is_the_same_as_json(tmp_path: Path):
    files = tmp_path / "rows.csv", tmp_path / "rows.json"
    run("bench", "broadcast", *TINY, "8:128:x4", "--csv", files[0], "--json", files[1])
    rows = list(csv.DictReader(files[0].open()))
    assert [row["bytes"] for row in rows] == ["8", "32", "128"]
    expected = json.loads(files[1].read_text())["rows"]
    assert [row.keys() for row in rows] == [row.keys() for row in expected]
    assert [float(row["time_us"]) for row in rows] == [row["time_us"] for row in expected]


def test_a_plan_can_measure_this_machine():
    done = run("plan", "--ranks", 2, "--sizes", "64K", "--measure")
    assert "# facts, measured here" in done.stdout
    assert "transport" not in done.stdout  # in the header of `mccl bench`


def test_without_a_check_nothing_counts_as_right(tmp_path: Path):
    file = tmp_path / "result.json"
    run("bench", "--no-check", *TINY, "64", "--json", file)
    assert [row["wrong"] for row in json.loads(file.read_text())["rows"]] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["bnech"], 'did you mean "mccl bench"'),
        (["frobnicate"], '"frobnicate" is not a command; "mccl --help" lists them'),
        (["--bench"], "--bench"),
        (["bench", "all_redcue"], "did you mean all_reduce?"),
        (["bench", "--sizes", "8Q"], '"8Q"'),
        (["bench", "--sizes", "64:8"], "ends below its start"),
        (["bench", "--sizes", "900G"], "this machine has"),
        (["bench", "--ranks", "0"], "1 to 1024"),
        (["bench", "--dtype", "f33"], "did you mean f32?"),
        (["bench", "--op", "band"], "not defined for"),
        (["bench", "--root", "2"], "0 to 1"),
        (["bench", "--transport", "pigeon"], "auto, tcp, shm"),
        (["bench", "--algorithm", "fast"], "recursive_doubling"),
        (["bench", "sendrecv", "--ranks", "1"], "two ranks"),
        (["bench", "--json", "/no/such/folder/file"], "/no/such/folder/file"),
        (["bench", "--seconds", "1", "--iterations", "1"], "excludes"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], reason: str):
    done = run(*arguments, status=2)
    assert reason in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--hlep"],
            'mccl: "--hlep" is not a flag; did you mean "--help"? ("mccl --help" explains',
        ),
        (["bench", "--rank", 2], 'mccl bench: "--rank" is not a flag; did you mean "--ranks"?'),
        (["plan", "--rank=2"], 'mccl plan: "--rank" is not a flag; did you mean "--ranks"?'),
        (
            ["launch", "--hostz", "x"],
            'mccl launch: "--hostz" is not a flag; did you mean "--hosts"?',
        ),
        (["launch", "-np", 2, "x"], 'mccl launch: "-np" is not a flag; did you mean "-n"?'),
        (["launch", "--nproc", 2], 'mccl launch: "--nproc" is not a flag; did you mean "-n"?'),
    ],
)
def test_the_error_for_an_unknown_flag_suggests_the_nearest(arguments: list, said: str):
    assert run(*arguments, status=2).stderr.startswith(said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["launch", "-n", 0, "x"],
            'mccl launch: -n: expected an integer from 1 to 4096; found "0"',
        ),
        (["launch", "--check"], "mccl launch: --check needs a value"),
        (["config", "--over", "foo"], 'mccl config: --over: "foo" is not known; the choices are'),
        (["doctor", "foo"], "mccl doctor: The following argument was not expected: foo"),
        (["doctor", "--yes"], "mccl doctor: --yes requires --fix"),
        (["doctor", "--output", "x"], "mccl doctor: --output requires --selftest"),
        (
            ["config", "--env", "foo"],
            'mccl config: --env: "foo" does not set a variable; expected NAME=',
        ),
    ],
)
def test_bad_flags_give_a_one_line_error(arguments: list, said: str):
    stderr = run(*arguments, status=2).stderr
    assert stderr.startswith(said)
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("asked", "usual"),
    [
        (["help"], ["--help"]),
        (["help", "launch"], ["launch", "--help"]),
        (["version"], ["--version"]),
    ],
)
def test_help_and_version_may_be_words(asked: list[str], usual: list[str]):
    assert run(*asked).stdout == run(*usual).stdout != ""


def test_a_wrong_variable_is_refused():
    assert "MCCL_ALGORITHM" in run("bench", status=2, MCCL_ALGORITM="ring").stderr
    assert "MCCL_WORLD_SIZE" in run("bench", status=2, MCCL_RANK="0").stderr


def test_a_refused_run_leaves_no_file(tmp_path: Path):
    run("bench", "--json", tmp_path / "result.json", "--root", 7, status=2)
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_cannot_meet_fail_with_the_reason():
    done = run(
        "bench", "--ranks", 2, *TINY, "8", status=1,
        MCCL_LISTEN_ADDR="192.0.2.1", MCCL_CONNECT_TIMEOUT="5",
    )  # fmt: skip
    assert "192.0.2.1" in done.stderr


def test_started_as_ranks_of_a_job_it_starts_none(tmp_path: Path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        root = f"127.0.0.1:{listener.getsockname()[1]}"
    file = tmp_path / "result.json"
    ranks = [
        subprocess.Popen(
            [program(), "bench", *TINY, "64", "--json", file],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(
                MCCL_RANK=str(rank), MCCL_WORLD_SIZE="2", MCCL_ROOT=root, MCCL_PORT_BASE="0"
            ),
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], outputs
    assert "a job of 2 ranks" in outputs[0]
    assert outputs[1] == ""
    assert json.loads(file.read_text())["one_host"] is False


def test_as_a_rank_of_a_job_it_refuses_to_be_another_number():
    job = {"MCCL_RANK": "0", "MCCL_WORLD_SIZE": "2", "MCCL_ROOT": "127.0.0.1:29500"}
    done = run("bench", "--ranks", 3, status=2, **job)
    assert "--ranks 3" in done.stderr


@pytest.mark.parametrize(
    "victim", [0, *(pytest.param(victim, marks=pytest.mark.long) for victim in (1, 2))]
)
def test_a_rank_that_is_killed_ends_the_run(endless, victim: int):
    started, ranks = endless
    assert len(ranks) == 3
    ranks[victim].kill()
    stdout, stderr = started.communicate(timeout=PATIENCE)
    assert started.returncode == 1, stdout + stderr
    assert f"mccl bench: rank {victim} of 3 on 127.0.0.1 was killed by signal 9" in stderr
    assert not any(map(runs, ranks))


def test_a_rank_that_is_stopped_for_good_is_ended_with_the_others(endless):
    started, ranks = endless
    ranks[2].suspend()
    ranks[1].kill()
    started.communicate(timeout=PATIENCE)
    assert started.returncode == 1
    assert not any(map(runs, ranks))


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(
            pytest.param(number, marks=pytest.mark.long)
            for number in (signal.SIGTERM, signal.SIGHUP)
        ),
        signal.SIGKILL,
    ],
)
def test_no_rank_outlives_the_program(endless, number: signal.Signals):
    started, ranks = endless
    started.send_signal(number)
    started.communicate(timeout=PATIENCE)
    assert started.returncode == -number
    deadline = time.monotonic() + PATIENCE
    while any(map(runs, ranks)):
        assert time.monotonic() < deadline, ranks
