"""What the collective calls of this process took, over all its groups."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from mccl import _core


@dataclass(frozen=True)
class MetricsSummary:
    """Counters since the first group was made, or since reset_metrics().

    Times are in milliseconds, of the calls that succeeded. For one call: queue wait is the time
    from submitted until started; execution from started until done; network is the part of it
    spent moving bytes, reduce the part spent in arithmetic, and sync the rest, waiting for peers.

    Attributes:
        total_ops: Calls that ended, failed ones included.
        total_bytes_sent: Bytes sent to peers.
        total_bytes_recv: Bytes received from peers.
        total_errors: Calls that failed.
        refused_connections: Connections of strangers that the listener dropped.
        avg_latency_ms: From submitted until done.
        p50_latency_ms: The median, within 5 %.
        p99_latency_ms: What 99 of 100 calls do not exceed, within 5 %.
        peak_throughput_gbps: Most payload gigabits per second of one call, however small.
        avg_sync_ms: Waiting for peers.
        avg_network_ms: Moving bytes.
        avg_reduce_ms: Arithmetic.
        avg_queue_wait_ms: Waiting for earlier calls.
        avg_execution_ms: From started until done.
        staging_bytes: Memory held now to pass data on: shared with other ranks of the machine,
            receive buffers, and room for sums under way.
        peak_staging_bytes: The most of it that was ever held at a time.
        pinned_bytes: Pinned host memory held now, which calls on GPU tensors are staged through.
            At most MCCL_PINNED_LIMIT_BYTES of it per GPU stays when no call uses it.
        peak_pinned_bytes: The most of it that was ever held at a time.
        shm_links: Links of groups that came about through shared memory. Those that measure the
            job at its start do not count.
        rdma_links: Through RDMA devices.
        tcp_links: Through TCP.
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

    def __str__(self) -> str:
        """The table that log_metrics() writes."""
        return _core.metrics_table(asdict(self)).rstrip("\n")


def get_metrics() -> MetricsSummary | None:
    """The metrics so far; None before this process has made a group."""
    fields = _core.metrics_summary()
    return None if fields is None else MetricsSummary(**fields)


def log_metrics() -> None:
    """Writes the metrics to stderr as a table, whatever the log level is.

    Before this process has made a group it says so instead.
    """
    _core.log_metrics()


def reset_metrics() -> None:
    """Zeroes every counter."""
    _core.reset_metrics()
