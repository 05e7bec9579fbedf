"""Runs a share of PyTorch's tests: `--share 2/8` the second of eight, which run side by side."""

import importlib
import os
import re
import sys
from pathlib import Path
from unittest import mock

# The ranks are forked, so CUDA must not be started here: neither to ask whether there are GPUs, nor
# whether triton or numba can use them, which PyTorch's tests do while they are imported.
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
    """A skip for a reason that nobody has looked at is a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if not any(re.search(pattern, reason) for pattern in SKIPS):
            report.outcome = "failed"
            report.longrepr = f"skipped for a reason that gpu_reasons.py does not list: {reason}"
    return report
