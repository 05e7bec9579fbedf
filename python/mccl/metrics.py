"""Counters and latencies of the collective calls of this process, over all its groups."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from mccl import _core


@dataclass(frozen=True)
class MetricsSummary:
    """Counters since the first group was made, or since reset_metrics().

    Times are averages in milliseconds unless noted, over calls that succeeded. The queue wait of a
    call lasts from its submission to its start, and its execution from its start to its end.
    Execution has three parts: network (moving bytes), reduce (arithmetic) and sync (waiting for
    peers).

    Attributes:
        total_ops: Calls that ended, including failed ones.
        total_bytes_sent: Bytes sent to peers.
        total_bytes_recv: Bytes received from peers.
        total_errors: Calls that failed.
        refused_connections: Unauthenticated connections that were dropped.
        avg_latency_ms: Time from submission to end.
        p50_latency_ms: Median latency, accurate to 5 %.
        p99_latency_ms: Latency that 99 % of calls do not exceed, accurate to 5 %.
        peak_throughput_gbps: Highest payload rate of one timed call of any size, in Gbit/s.
        avg_sync_ms: Time spent waiting for peers.
        avg_network_ms: Time spent moving bytes.
        avg_reduce_ms: Time spent in arithmetic.
        avg_queue_wait_ms: Time from submission to start.
        avg_execution_ms: Time from start to end.
        staging_bytes: Bytes currently allocated to transfer data: memory shared with other ranks
            of the machine, receive buffers, and scratch space for sums in progress.
        peak_staging_bytes: Largest value of staging_bytes.
        pinned_bytes: Bytes of pinned host memory currently allocated, through which calls on GPU
            tensors copy their data. If no call uses them, at most MCCL_PINNED_LIMIT_BYTES per GPU
            stay allocated.
        peak_pinned_bytes: Largest value of pinned_bytes.
        shm_links: Number of links established through shared memory. Links that serve only the
            measurements at the start of the job do not count.
        rdma_links: Number of links established through RDMA devices.
        tcp_links: Number of links established through TCP.
        repaired_links: Number of TCP connections to live ranks that broke and were replaced.
    """

    total_ops: int = 0
    total_bytes_sent: int = 0
    total_bytes_recv: int = 0
    total_errors: int = 0
    refused_connections: int = 0
    avg_latency_ms: float = 0.0
    p50_latency_ms: float = 0.0
    p99_latency_ms: float = 0.0
    peak_throughput_gbps: float = 0.0
    avg_sync_ms: float = 0.0
    avg_network_ms: float = 0.0
    avg_reduce_ms: float = 0.0
    avg_queue_wait_ms: float = 0.0
    avg_execution_ms: float = 0.0
    staging_bytes: int = 0
    peak_staging_bytes: int = 0
    pinned_bytes: int = 0
    peak_pinned_bytes: int = 0
    shm_links: int = 0
    rdma_links: int = 0
    tcp_links: int = 0
    repaired_links: int = 0

    def __str__(self) -> str:
        """The table that log_metrics() writes."""
        return _core.metrics_table(asdict(self)).rstrip("\n")


def get_metrics() -> MetricsSummary | None:
    """The metrics so far; None before this process has made a group."""
    fields = _core.metrics_summary()
    return None if fields is None else MetricsSummary(**fields)


def log_metrics() -> None:
    """Writes the metrics to stderr as a table, regardless of the log level.

    If this process has not made a group yet, writes one line that says so.
    """
    _core.log_metrics()


def flight_record() -> dict[str, Any] | None:
    """Returns the last 4096 calls of this process, and its groups; None before it has made a group.

    The record belongs to the newest context, even after its groups have failed or ended.
    docs/inspect.md describes its fields.
    """
    text = _core.flight_record()
    return json.loads(text) if text else None


def reset_metrics() -> None:
    """Resets all counters. The numbers of links and the bytes held now do not change."""
    _core.reset_metrics()
