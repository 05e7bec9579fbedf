"""Runs a share of PyTorch's tests: `--share 2/8` runs the second of eight parallel shares."""

import importlib
import os
import re
import sys
from pathlib import Path
from unittest import mock

# The ranks are forked, so this process must not initialise CUDA. PyTorch's tests would do so on
# import, to look for GPUs and to ask whether triton or numba can use them.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "torch_suite"))

import pytest
import torch.utils._triton
from gpu_reasons import EXPECTED_FAILURES, LEFT_OUT, SKIPS

sys.modules["numba"] = None
with mock.patch.object(torch.utils._triton, "has_triton", lambda: False):
    importlib.import_module("torch.testing._internal.common_device_type")


def pytest_addoption(parser):
    parser.addoption("--share", default="1/1", help="such as 2/8")


def pytest_collection_modifyitems(config, items):
    share, shares = map(int, config.getoption("--share").split("/"))
    wanted = [item for item in items if item.name not in LEFT_OUT]
    own = wanted[share - 1 :: shares]
    config.hook.pytest_deselected(items=[item for item in items if item not in own])
    items[:] = own
    for item in items:
        if reason := EXPECTED_FAILURES.get(item.name):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turns a skip into a failure if gpu_reasons.py does not list its reason."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if not any(re.search(pattern, reason) for pattern in SKIPS):
            report.outcome = "failed"
            report.longrepr = f"skipped for a reason that gpu_reasons.py does not list: {reason}"
    return report
