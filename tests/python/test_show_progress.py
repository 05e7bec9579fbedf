"""The output of scripts/show_progress.py for the lines of a build."""

import os
import pty
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "show_progress.py"
STEPS = [f"[{i}/3] Building CXX object src/CMakeFiles/mccl.dir/base/{i}.cpp.o" for i in (1, 2, 3)]


def command(log: Path, lines: list[str], status: int = 0) -> list[str]:
    """Returns a command that runs the script over a build which prints these lines."""
    code = f"import sys; print({os.linesep.join(lines)!r}); sys.exit({status})"
    return [sys.executable, str(SCRIPT), "build", str(log), sys.executable, "-c", code]


def test_a_log_gets_few_lines_and_the_file_gets_all(tmp_path: Path):
    log = tmp_path / "new" / "build.log"
    said = ["-- torch extension: left out", *STEPS, "a.cpp:1: warning: odd", "chatter"]
    done = subprocess.run(command(log, said), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == [
        "build: -- torch extension: left out",
        "build: a.cpp:1: warning: odd",
    ]
    assert done.stdout.splitlines()[2].startswith("build: done, 3 steps in ")
    assert log.read_text().splitlines() == said


def test_a_failure_is_shown_and_passed_on(tmp_path: Path):
    said = [*STEPS, "FAILED: base/3.cpp.o", "3.cpp:1: error: no"]
    done = subprocess.run(
        command(tmp_path / "log", said, status=3), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[:2] == said[-2:]
    assert str(tmp_path / "log") in done.stderr


def test_a_terminal_sees_each_step_in_one_line(tmp_path: Path):
    ours, its = pty.openpty()
    with subprocess.Popen(command(tmp_path / "log", STEPS), stdout=its) as process:
        os.close(its)
        seen = b""
        try:
            while chunk := os.read(ours, 4096):
                seen += chunk
        except OSError:  # Linux raises this once the other end is closed.
            pass
        assert process.wait(timeout=60) == 0
    os.close(ours)
    text = seen.decode()
    assert [f"build: {i} of 3, base/{i}.cpp" in text for i in (1, 2, 3)] == [True] * 3
    assert text.count("\n") == 1
