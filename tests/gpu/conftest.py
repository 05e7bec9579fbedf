"""Tests that need GPUs. `make test-gpu` runs them; without a GPU they are skipped."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "torch"))

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips all tests of this folder if there is no GPU."""
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip("this machine has no CUDA GPU that torch can use"))


def pytest_terminal_summary(terminalreporter) -> None:
    """Prints how many tests of this folder ran, and why the others were skipped."""
    here = str(Path(__file__).parent.relative_to(terminalreporter.config.rootpath))
    stats = terminalreporter.stats
    ran = [r for name in ("passed", "failed") for r in stats.get(name, []) if r.when == "call"]
    skipped = [r for r in stats.get("skipped", []) if r.nodeid.startswith(here)]
    ran = [r for r in ran if r.nodeid.startswith(here)]
    if not ran and not skipped:
        return
    import torch

    reasons = Counter(r.longrepr[2].removeprefix("Skipped: ") for r in skipped)
    terminalreporter.write_line(
        f"GPU tests on {torch.cuda.device_count()} GPUs: {len(ran)} ran, {len(skipped)} skipped"
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"  {count} skipped: {reason}")


@pytest.fixture(scope="session")
def pool():
    """Four ranks that share the available GPUs and communicate through the host."""
    from rank_pool import RankPool
    from test_torch_cuda import through_host

    ranks = RankPool()
    ranks.run(through_host, group=False)
    yield ranks
    ranks.close()
