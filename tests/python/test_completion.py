"""The completions of shells and the manual pages of the program."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from launching import ROOT, environment, program

#: The commands of `mccl --help`.
COMMANDS = (
    "launch", "config", "doctor", "bench", "plan", "status", "top", "dump", "trace", "completion",
)  # fmt: skip


def said(*words: str) -> str:
    done = subprocess.run(
        [program(), *words], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stderr == ""
    return done.stdout


def flags_of_help(command: str) -> set[str]:
    """Returns the flags at the beginning of lines in the command's help."""
    lines = [x.split()[0] for x in said(command, "--help").splitlines() if x.startswith("  -")]
    return {flag for names in lines for flag in names.split(",")}


def completed(tmp_path: Path, *words: str) -> set[str]:
    """Returns bash's proposals for completing the last word."""
    script = tmp_path / "mccl.bash"
    script.write_text(said("completion", "bash"))
    quoted = " ".join(f"'{word}'" for word in words)
    line = (
        f"source {script}; COMP_WORDS=(mccl {quoted}); COMP_CWORD={len(words)}; _mccl; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", line], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_proposes_commands(tmp_path: Path):
    assert completed(tmp_path, "") >= set(COMMANDS)
    assert "probe" not in completed(tmp_path, "")
    assert completed(tmp_path, "la") == {"launch"}


@pytest.mark.parametrize("command", ["launch", "config", "doctor", "bench", "plan"])
def test_bash_proposes_all_flags_of_the_help(tmp_path: Path, command: str):
    flags = flags_of_help(command)
    assert len(flags) > 3
    assert completed(tmp_path, command, "-") >= flags


def test_bash_proposes_values(tmp_path: Path):
    (tmp_path / "desk.json").touch()
    (tmp_path / "folder").mkdir()
    assert completed(tmp_path, "launch", "--hostfile", "d") == {"desk.json"}
    assert completed(tmp_path, "launch", "--cwd", "") == {"folder"}
    assert completed(tmp_path, "launch", "--hosts", "") == set()
    assert completed(tmp_path, "completion", "z") == {"zsh"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completions_of_other_shells_list_all_flags(tmp_path: Path, shell: str):
    script = said("completion", shell)
    for flag in flags_of_help("launch"):
        in_fish = f" -l {flag[2:]} " if flag.startswith("--") else f" -s {flag[1:]} "
        assert (f"'*{flag}[" if shell == "zsh" else in_fish) in script
    if (found := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed; only the text is looked at")
    file = tmp_path / "script"
    file.write_text(script)
    subprocess.run([found, "-n", file], check=True)


def test_an_unknown_shell_is_an_error():
    done = subprocess.run([program(), "completion", "csh"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "bash, zsh" in done.stderr


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_manual_pages_hold_the_help(command: str):
    page = said("man", *([command] if command else []))
    plain = page.replace("\\-", "-")
    for flag in flags_of_help(command) if command else COMMANDS:
        assert flag in plain
    if (groff := shutil.which("groff")) is None:
        pytest.skip("groff is not installed; only the text is looked at")
    shown = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True
    )
    assert shown.stderr == ""
    assert "SYNOPSIS" in re.sub(r".\x08", "", shown.stdout)  # groff overstrikes bold characters


def test_each_command_that_the_first_page_lists_has_a_page(tmp_path: Path):
    definitions = (f"-DPROGRAM={program()}", f"-DFOLDER={tmp_path}")
    script = ROOT / "cmake/tell_shells.cmake"
    subprocess.run(["cmake", *definitions, "-P", script], check=True, env=environment())
    pages = tmp_path / "share/man/man1"
    listed = re.findall(r"^\.BR (\S+) \(1\)$", (pages / "mccl.1").read_text(), re.M)
    assert {name.replace("\\-", "-") for name in listed} == {f"mccl-{name}" for name in COMMANDS}
    expected = {"mccl.1", *(f"mccl-{name}.1" for name in COMMANDS)}
    assert {path.name for path in pages.iterdir()} == expected


def test_a_manual_page_of_nothing_is_an_error():
    done = subprocess.run([program(), "man", "lunch"], capture_output=True, text=True)
    assert done.returncode == 2
    assert '"lunch" is not a command' in done.stderr
