"""Runs the programs of examples/frameworks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import launching

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/frameworks"
PATIENCE = 300


def run(*command: object, **variables: str) -> str:
    """Returns what a command that must succeed prints. `variables` are environment variables."""
    done = subprocess.run(
        [str(word) for word in command],
        env=launching.environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout
