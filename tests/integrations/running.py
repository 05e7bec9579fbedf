"""Runs the programs of examples/frameworks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import launching

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/frameworks"
PATIENCE = 300


def run(*command: object, **variables: str) -> str:
    """Returns what a command that must succeed prints. `variables` are environment variables."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=launching.environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        # Launchers leave their ranks behind if they are killed.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, (output, errors)
    return output
