"""Flags of `mccl config` and `mccl doctor`, on this machine only."""

import argparse
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from launching import environment, program


def flags_of_mlx(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Action]:
    """Returns the options of the installed MLX's mlx.distributed_config."""
    theirs = pytest.importorskip("mlx._distributed_utils.config")
    parsers = []

    def kept(self: argparse.ArgumentParser, *_: object) -> None:
        parsers.append(self)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", kept)
    with pytest.raises(SystemExit):
        theirs.main()
    return [action for action in parsers[0]._actions if action.dest != "help"]


def test_flags_are_those_of_mlx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Each of MLX's flags is accepted with each of its choices, and means the same."""
    actions = flags_of_mlx(monkeypatch)
    names = {name for action in actions for name in action.option_strings}
    assert names == {
        "--verbose", "--hosts", "--ignore-unreachable", "--hostfile", "--over", "--output-hostfile",
        "--auto-setup", "--no-auto-setup", "--dot", "--backend", "--env",
    }, "MLX has other flags now: see whether mccl config should"  # fmt: skip
    by_name = {action.dest: action for action in actions}
    # The error for an unknown choice lists all choices.
    for flag in ("over", "backend"):
        done = subprocess.run(
            [program(), "config", f"--{flag}", "nothing"], capture_output=True, text=True
        )
        assert done.returncode == 2
        listed = re.findall(r"[a-z-]+", done.stderr)
        assert set(by_name[flag].choices) <= set(listed), done.stderr
    assert by_name["hosts"].default == "127.0.0.1"
    assert not by_name["auto_setup"].default and by_name["env"].default == []
    # This run leaves out the flags whose defaults both programs share, and gives all others at
    # once.
    file = tmp_path / "hosts.json"
    done = subprocess.run(
        [program(), "config", "--verbose", "--ignore-unreachable", "--backend", "ring",
         "--output-hostfile", file, "--no-auto-setup", "--env", "A=1", "--env", "B=2"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done
    written = json.loads(file.read_text())
    assert [host["ssh"] for host in written["hosts"]] == ["127.0.0.1"]
    assert (written["backend"], written["envs"]) == ("ring", ["A=1", "B=2"])


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit is not installed")
@pytest.mark.parametrize("command", ["doctor", "config"])
def test_more_hosts_than_files_are_refused_before_any_is_queried(command: str):
    names = ",".join(f"no-such-host-{i}" for i in range(300))
    done = subprocess.run(
        ["prlimit", "--nofile=100:200", program(), command, "--hosts", names, "--json"],
        capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    assert done.returncode == 1, done
    error = json.loads(done.stdout)["error"]
    assert (
        "querying 300 hosts in parallel needs 9" in error
        and "may open 200; raise the limit" in error
    )
    assert "no-such-host" not in done.stderr


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit is not installed")
def test_doctor_reports_the_limit_of_files_of_the_shell():
    """Doctor reports the shell's limit, not the one that mccl raises for itself."""
    done = subprocess.run(
        ["prlimit", "--nofile=1100:2200", program(), "doctor", "--json"],
        capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    here = json.loads(done.stdout)["hosts"][0]
    assert (here["open_files"], here["most_open_files"]) == (1100, 2200)


@pytest.mark.parametrize("command", ["doctor", "config"])
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--hosts", "a b"), 2, "is not a host"),
        (("--hosts", ""), 2, "--hosts: the value is empty"),
        (("--hostfile", ""), 2, "--hostfile: the value is empty"),
        (("--hosts", "a,,b"), 2, "is not a host"),
        (("--hostfile", "/none"), 2, "/none"),
        (("--hostfile", "/dev/null"), 2, "/dev/null"),
        (("--hosts", "a", "--hostfile", "b"), 2, "xcludes"),
        (("--hots", "a"), 2, "--hosts"),
        (("--patience", "0"), 2, "--patience"),
        (("--patience",), 2, "--patience"),
        (("surplus",), 2, "surplus"),
        (("--dot",), 2, "--dot"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_errors_are_json_if_json_is_requested(command: str, words: tuple, status: int, said: str):
    for order in (("--json", *words), (*words, "--json")):
        done = subprocess.run(
            [program(), command, *order], capture_output=True, text=True, env=environment()
        )
        assert done.returncode == status, done
        if order[-2:] != ("--patience", "--json"):  # here the value is missing, or it is "--json"
            assert said in json.loads(done.stdout)["error"]
        assert done.stderr
