import dataclasses
import subprocess
import sys

import pytest

from mccl import _core
from mccl.metrics import MetricsSummary, get_metrics, log_metrics, reset_metrics


@pytest.fixture(autouse=True)
def no_calls_counted():
    reset_metrics()
    yield
    reset_metrics()


def run_python(code):
    """Runs code in a fresh interpreter, in which no group was made."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)


def test_none_before_any_group():
    result = run_python("from mccl.metrics import get_metrics; print(get_metrics())")
    assert result.stdout == "None\n"


def test_zeros_once_a_group_was_made():
    result = run_python(
        "from mccl import _core; from mccl.metrics import *\n"
        "_core.share_metrics(0); print(get_metrics().total_ops)"
    )
    assert result.stdout == "0\n"


def test_summary_has_the_fields_of_the_library():
    _core.record_call(execution_s=0.01)
    fields = [field.name for field in dataclasses.fields(MetricsSummary)]
    assert list(_core.metrics_summary()) == fields


def test_calls_are_counted_and_timed():
    _core.record_call(
        queue_wait_s=0.001,
        execution_s=0.010,
        network_s=0.004,
        reduce_s=0.002,
        payload_bytes=1_250_000,
        bytes_sent=7,
        bytes_received=8,
    )
    _core.record_call(failed=True)
    summary = get_metrics()
    assert (summary.total_ops, summary.total_errors) == (2, 1)
    assert (summary.total_bytes_sent, summary.total_bytes_recv) == (7, 8)
    assert summary.avg_latency_ms == pytest.approx(11)
    assert summary.p50_latency_ms == pytest.approx(11, rel=0.05)
    assert summary.avg_sync_ms == pytest.approx(4)
    assert summary.peak_throughput_gbps == pytest.approx(1)
    reset_metrics()
    assert _core.metrics_summary() in (None, dataclasses.asdict(MetricsSummary()))


def test_a_printed_summary_is_the_table():
    text = str(MetricsSummary(total_ops=12, total_bytes_sent=3 << 20, p50_latency_ms=0.25))
    lines = text.splitlines()
    assert len(lines) == len(dataclasses.fields(MetricsSummary))
    assert len({len(line) for line in lines}) == 1, text
    assert "sent" in text
    assert "3.0 MiB" in text
    assert "0.250 ms" in text
    assert repr(MetricsSummary(total_ops=12)).startswith("MetricsSummary(total_ops=12, ")


def test_log_metrics_says_that_there_is_no_group():
    result = run_python("from mccl.metrics import log_metrics; log_metrics()")
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "this process has no group yet" in line


def test_the_capsule_is_what_other_extensions_expect():
    assert '"mccl.metrics"' in repr(_core.share_metrics(3))


def test_log_metrics_writes_the_table_to_stderr(capfd):
    _core.share_metrics(3)
    _core.record_call(execution_s=0.25)
    log_metrics()
    written = capfd.readouterr()
    assert written.out == ""
    lines = written.err.splitlines()
    assert len(lines) == len(str(get_metrics()).splitlines())
    assert all("INFO  [mccl rank 3] " in line for line in lines)
    assert any("latency, p50" in line and "250.000 ms" in line for line in lines)
