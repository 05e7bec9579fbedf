import re

import pytest
from reasons import EXPECTED_FAILURES, SKIPS


def pytest_collection_modifyitems(config, items):
    """Deselects tests that a class's ONLY does not match, and marks known failures."""
    unwanted = [item for item in items if not re.search(getattr(item.cls, "ONLY", ""), item.name)]
    items[:] = [item for item in items if item not in unwanted]
    config.hook.pytest_deselected(items=unwanted)
    for item in items:
        if reason := EXPECTED_FAILURES.get(item.name):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turns a skip into a failure if reasons.py does not list its reason."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if not any(re.search(pattern, reason) for pattern in SKIPS):
            report.outcome = "failed"
            report.longrepr = f"skipped for a reason that reasons.py does not list: {reason}"
    return report
