"""`mccl launch` on a terminal: a debugger in one rank, keys, and the size of the window."""

import re
import signal
import sys
from pathlib import Path

import pytest
import ssh_hosts
from launching import PATIENCE, environment, program

pexpect = pytest.importorskip("pexpect")

DEBUGGED = """
import os, sys
rank = os.environ["MCCL_RANK"]
secret = 40 + int(rank)
if rank == "1":
    breakpoint()
print("went on", rank, sys.stdin.isatty(), flush=True)
"""
SIZES = """
import os, signal, sys, time
def tell(*_):
    size = os.get_terminal_size(0)
    print("size", size.columns, size.lines, flush=True)
signal.signal(signal.SIGWINCH, tell)
if os.isatty(0):
    tell()
while True:
    time.sleep(1000)
"""


@pytest.fixture
def session():
    """Starts jobs, each on its own terminal, and ends them after the test."""
    started = []

    def begin(*arguments: object, before: tuple = (), size: tuple = (30, 90)) -> pexpect.spawn:
        words = [*before, str(program()), "launch", *map(str, arguments)]
        child = pexpect.spawn(
            words[0], words[1:], env=environment(TERM="dumb"), timeout=PATIENCE, dimensions=size,
            encoding="utf-8",
        )  # fmt: skip
        # Keys are sent without a delay. A debugger that discards early input while it prepares the
        # terminal would lose them.
        child.delaybeforesend = None
        started.append(child)
        return child

    yield begin
    for child in started:
        child.close(force=True)


def ends(child: pexpect.spawn) -> int:
    """Waits for the job's end and returns the exit status that a shell would see."""
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus if child.signalstatus is None else 128 + child.signalstatus


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(text)
    return path


def test_a_debugger_in_one_rank_that_gets_the_keyboard(session, tmp_path: Path):
    child = session(
        "-n", 3, "--stdin-to", 1, "--python", sys.executable, script(tmp_path, DEBUGGED)
    )
    child.expect_exact("(Pdb) ")
    child.sendline("p secret")
    child.expect_exact("41")
    child.expect_exact("(Pdb) ")
    child.sendintr()  # interrupts the debugger's command; the job must not end
    child.expect_exact("KeyboardInterrupt")
    child.expect_exact("(Pdb) ")
    child.sendline("p secret + 1")
    child.expect_exact("42")
    child.expect_exact("(Pdb) ")
    child.sendline("c")
    child.expect("went on 1 True")
    assert ends(child) == 0


def test_a_debugger_in_one_rank_when_all_get_what_is_typed(session, tmp_path: Path):
    child = session("-n", 3, "--python", sys.executable, script(tmp_path, DEBUGGED))
    child.expect_exact("(Pdb) ")
    child.sendline("p secret")
    child.expect_exact("41")
    child.expect_exact("(Pdb) ")
    child.sendline("c")
    child.expect("went on 1 True")
    assert ends(child) == 0


def test_ctrl_d_leaves_a_debugger(session, tmp_path: Path):
    child = session(
        "-n", 2, "--stdin-to", 1, "--python", sys.executable, script(tmp_path, DEBUGGED)
    )
    child.expect_exact("(Pdb) ")
    child.sendeof()
    child.expect_exact("bdb.BdbQuit")
    assert ends(child) == 1


def test_ctrl_d_ends_the_input_of_all(session):
    child = session("-n", 3, "--", "sh", "-c", "n=$(wc -l); echo had $n")
    child.sendline("one")
    child.sendline("two")
    child.sendeof()
    for _ in range(3):
        child.expect_exact("had 2")
    assert ends(child) == 0


def test_ctrl_c_ends_a_job_that_all_type_to(session):
    child = session("-n", 3, "--", "sh", "-c", "echo ready; sleep 1000")
    for _ in range(3):
        child.expect_exact("ready")
    child.sendintr()
    child.expect_exact("signal 2")
    assert ends(child) == 128 + signal.SIGINT


@pytest.mark.parametrize("flags", [(), ("--stdin-to", 0)])
def test_the_window_has_its_size_and_changes_it(session, tmp_path: Path, flags: tuple):
    child = session("-n", 2, *flags, "--python", sys.executable, script(tmp_path, SIZES))
    child.expect_exact("size 90 30")
    if not flags:
        child.expect_exact("size 90 30")
    child.setwinsize(40, 123)
    child.expect_exact("size 123 40")


def test_prefixes_are_coloured_and_a_prompt_shows_before_its_line_ends(session):
    child = session("-n", 2, "--", "sh", "-c", "printf 'name? '; read x; echo hello $x")
    child.expect(r"\x1b\[3\dm\[\d\]\x1b\[0m name\? ")
    child.sendline("me")
    for _ in range(2):
        child.expect_exact("hello me")
    assert ends(child) == 0


def test_a_rank_that_writes_alone_may_move_the_cursor(session):
    draw = "[ $RANK = 0 ] && printf 'a\\nb\\rc\\n'"
    child = session("-n", 2, "--", "sh", "-c", f"{draw}; true")
    child.expect(pexpect.EOF)
    assert child.before == "a\r\nb\rc\r\n"


def test_prefixes_start_when_a_second_rank_writes(session):
    script = (
        "[ $RANK = 1 ] && { read x; echo second; exit; }; echo alone; read x; read x; echo first"
    )
    child = session("-n", 2, "--", "sh", "-c", script)
    child.expect_exact("alone\r\n")
    assert child.before == ""
    child.sendline("")
    child.expect(r"\x1b\[3\dm\[1\]\x1b\[0m second")
    child.sendline("")
    child.expect(r"\x1b\[3\dm\[0\]\x1b\[0m first")
    assert ends(child) == 0


def test_prefixes_may_be_requested(session):
    child = session("-n", 2, "--prefix", "--", "sh", "-c", "[ $RANK = 0 ] && echo alone; true")
    child.expect(r"\[0\]\x1b\[0m alone")
    assert ends(child) == 0


def test_the_terminal_is_restored(session):
    child = session(
        "-n", 1, "--", "sh", "-c", "exit 3", before=("sh", "-c", 'stty -g; "$@"; stty -g', "-")
    )
    child.expect(pexpect.EOF)
    modes = re.findall(r"^[0-9a-f:]{20,}", child.before, re.MULTILINE)
    assert len(modes) == 2
    assert modes[0] == modes[1]


@pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
def test_a_debugger_on_another_host(session, tmp_path: Path):
    hosts = ssh_hosts.SshHosts(2)
    try:
        child = session(
            "--ssh-arg=-F", "--ssh-arg", hosts.config, "--hosts", "a,b", "--stdin-to", 1,
            "--python", sys.executable, script(tmp_path, DEBUGGED + SIZES),
            before=tuple(hosts.on("desk")),
        )  # fmt: skip
        child.expect_exact("(Pdb) ")
        child.sendline("p secret")
        child.expect_exact("41")
        child.expect_exact("(Pdb) ")
        child.sendintr()
        child.expect_exact("KeyboardInterrupt")
        child.expect_exact("(Pdb) ")
        child.sendline("c")
        child.expect_exact("size 90 30")
        child.setwinsize(40, 123)
        child.expect_exact("size 123 40")
        child.sendintr()
        child.expect_exact("Program interrupted")
    finally:
        hosts.close()
