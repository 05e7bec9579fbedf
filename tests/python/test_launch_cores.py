"""The cores to which `mccl launch` binds its ranks on this machine."""

import os
import sys
from pathlib import Path

import pytest
from launching import environment, run

SH = ("--", "sh", "-c")


def cores_of(stdout: str) -> list[str]:
    return [x.split(":", 1)[1].strip() for x in stdout.splitlines() if "Cpus_allowed_list" in x]


SHOW_CORES = (*SH, "grep Cpus_allowed_list /proc/self/status")


TWO = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2 or (os.cpu_count() or 1) > 64,
    reason="two cores are bound",
)


@TWO
def test_ranks_share_the_cores():
    every = os.sched_getaffinity(0)
    done = run("-n", 2, "--no-prefix", "--verbose", *SHOW_CORES)
    parts = [parse_cores(text) for text in cores_of(done.stdout)]
    assert parts[0] | parts[1] == every
    assert not parts[0] & parts[1]
    for text in cores_of(done.stdout):
        assert f"bound to cores {text}:" in done.stderr
    one = run("-n", 2, "--no-prefix", "--bind-to", "core", *SHOW_CORES)
    assert len(set(cores_of(one.stdout))) == 2


def parse_cores(text: str) -> set[int]:
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores |= set(range(int(first), int(last or first) + 1))
    return cores


@TWO
@pytest.mark.parametrize(
    ("flags", "before", "variables", "why"),
    [
        (("-n", 2, "--bind-to", "none"), (), {}, None),
        (("-n", 2 * len(os.sched_getaffinity(0)), "--bind-to", "core"), (), {}, "more ranks"),
        (("-n", 2, "--bind-to", "share"), (), {"OMP_PROC_BIND": "close"}, "OMP_PROC_BIND is set"),
        (("-n", 1, "--bind-to", "core"), ("taskset", "-c", "1"), {}, "an affinity is already set"),
    ],
)
def test_nothing_is_bound_where_it_would_do_harm(flags, before, variables, why):
    done = run(*flags, "--no-prefix", *SHOW_CORES, before=before, env=environment(**variables))
    alone = {"1"} if before else {",".join(cores_of(Path("/proc/self/status").read_text()))}
    assert set(cores_of(done.stdout)) == alone
    assert (
        why is None and done.stderr == ""
    ) or f"not bound to cores: {why}" in done.stderr.replace("there are ", "")
