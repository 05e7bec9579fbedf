// Counters and latencies of a process's calls, over all its groups.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mccl/export.h"
#include "mccl/types.h"

namespace mccl {

/// Summary of a process's calls. Times are averages in milliseconds unless noted, over calls that
/// succeeded. Only a sample of the calls that take a microsecond or less is timed, and the times of
/// the sample stand for all of these calls. Times of one call: queue wait = from submission
/// to start; execution = from start to end; network = time spent moving bytes; reduce = time spent
/// in arithmetic; sync = the rest of execution, spent waiting for peers.
struct MetricsSummary {
  std::uint64_t total_ops = 0;
  std::uint64_t total_bytes_sent = 0;
  std::uint64_t total_bytes_recv = 0;
  std::uint64_t total_errors = 0;
  /// Unauthenticated connections that were dropped, including those to rank 0's store.
  std::uint64_t refused_connections = 0;
  double avg_latency_ms = 0;  ///< Time from submission to end.
  /// Median and 99th percentile of the latency, computed from a histogram and accurate to 5 %.
  double p50_latency_ms = 0;
  double p99_latency_ms = 0;
  double peak_throughput_gbps = 0;  ///< Highest payload rate of one timed call, in Gbit/s.
  double avg_sync_ms = 0;
  double avg_network_ms = 0;
  double avg_reduce_ms = 0;
  double avg_queue_wait_ms = 0;
  double avg_execution_ms = 0;
  /// Bytes of memory in which the process stages data for transfers, now and at peak: memory shared
  /// with the other ranks of its node, receive buffers, and scratch space for sums in progress.
  /// reset() changes only the peak.
  std::uint64_t staging_bytes = 0;
  std::uint64_t peak_staging_bytes = 0;
  /// Bytes of the process's pinned host memory, now and at peak. Calls on GPU memory are staged
  /// through it. At most MCCL_PINNED_LIMIT_BYTES per GPU stay allocated while no call uses them.
  std::uint64_t pinned_bytes = 0;
  std::uint64_t peak_pinned_bytes = 0;
  /// Number of links to other ranks that were established over each transport. reset() does not
  /// change these numbers.
  std::uint64_t shm_links = 0;
  std::uint64_t rdma_links = 0;
  std::uint64_t tcp_links = 0;
  /// Number of TCP connections to live ranks that broke and were replaced.
  std::uint64_t repaired_links = 0;
};

/// Calls `visit` with the name and the value of each field, in the order above.
template <typename Summary, typename Visit>
void for_each_field(Summary& summary, const Visit& visit) {
  visit("total_ops", summary.total_ops);
  visit("total_bytes_sent", summary.total_bytes_sent);
  visit("total_bytes_recv", summary.total_bytes_recv);
  visit("total_errors", summary.total_errors);
  visit("refused_connections", summary.refused_connections);
  visit("avg_latency_ms", summary.avg_latency_ms);
  visit("p50_latency_ms", summary.p50_latency_ms);
  visit("p99_latency_ms", summary.p99_latency_ms);
  visit("peak_throughput_gbps", summary.peak_throughput_gbps);
  visit("avg_sync_ms", summary.avg_sync_ms);
  visit("avg_network_ms", summary.avg_network_ms);
  visit("avg_reduce_ms", summary.avg_reduce_ms);
  visit("avg_queue_wait_ms", summary.avg_queue_wait_ms);
  visit("avg_execution_ms", summary.avg_execution_ms);
  visit("staging_bytes", summary.staging_bytes);
  visit("peak_staging_bytes", summary.peak_staging_bytes);
  visit("pinned_bytes", summary.pinned_bytes);
  visit("peak_pinned_bytes", summary.peak_pinned_bytes);
  visit("shm_links", summary.shm_links);
  visit("rdma_links", summary.rdma_links);
  visit("tcp_links", summary.tcp_links);
  visit("repaired_links", summary.repaired_links);
}

/// Measurements of one finished call, in seconds and bytes.
struct CallSample {
  double queue_wait_s = 0;
  double execution_s = 0;
  double network_s = 0;
  double reduce_s = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  bool failed = false;
};

/// Counts calls that are so short that even an atomic read-modify-write operation would slow them
/// noticeably. Only one thread at a time may call count(); other threads may read the counts.
class Tally {
 public:
  void count(std::uint64_t bytes_sent, std::uint64_t bytes_received) {
    add(calls_, 1);
    add(sent_, bytes_sent);
    add(received_, bytes_received);
  }
  std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_sent() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_received() const { return received_.load(std::memory_order_relaxed); }

 private:
  using Counter = std::atomic<std::uint64_t>;
  static void add(Counter& counter, std::uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  Counter calls_{0};
  Counter sent_{0};
  Counter received_{0};
};

class FlightRecorder;

/// Collects the measurements of a context's calls. Thread-safe. Recording a call takes constant
/// time and allocates no memory.
class MCCL_API Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Records one call. Its times also stand for weight - 1 calls that a Tally has counted without
  /// timing them.
  void record(const CallSample& call, std::uint32_t weight = 1);
  /// Returns a new Tally for calls that succeed without being timed. Its counts stay in the summary
  /// after the Tally is released.
  std::shared_ptr<Tally> tally();
  /// Adds 1 to MetricsSummary::refused_connections.
  void record_refused_connection();
  /// Counts one established link. `transport` is "shm", "rdma" or "tcp"; any other value is
  /// ignored.
  void record_link(std::string_view transport);
  /// Adds 1 to MetricsSummary::repaired_links.
  void record_repaired_link();
  /// Adds `bytes` to MetricsSummary::staging_bytes; `bytes` is negative when memory is released.
  void record_staging(std::int64_t bytes);
  /// Records the algorithm that calls of the collective use from now on. `algorithm` must refer to
  /// text that is never freed.
  void record_algorithm(Collective collective, std::string_view algorithm);
  /// Algorithm of the last call of the collective, over all groups; empty before the first call.
  std::string_view algorithm_of(Collective collective) const;
  /// Keeps `recorder`, the flight recorder of the newest context, for flight_record().
  void keep(std::shared_ptr<const FlightRecorder> recorder);
  /// The flight record (Context::flight_record()) of the context that was made last, even if that
  /// context has ended. Empty before any context was made.
  std::string flight_record() const;
  /// Returns the current values. Blocks record() for the time of a few additions.
  MetricsSummary summary() const;
  /// Sets the counters and times to 0 and the peaks to the current values. Keeps the numbers of
  /// links and the current memory.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The summary as an aligned two-column table of several lines.
MCCL_API std::string to_table(const MetricsSummary& summary);

}  // namespace mccl
