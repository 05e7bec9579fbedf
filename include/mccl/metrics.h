// Counters and latencies of a process's calls, over all its groups.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace mccl {

/// Times are averages in milliseconds unless named otherwise, over calls that succeeded; of calls
/// of a microsecond or less, one in a few is timed and stands for the others. For one call: queue
/// wait = submitted until started; execution = started until done; network = time spent moving
/// bytes; reduce = time spent in arithmetic; sync = the rest of execution, waiting for peers.
struct MetricsSummary {
  std::uint64_t total_ops = 0;
  std::uint64_t total_bytes_sent = 0;
  std::uint64_t total_bytes_recv = 0;
  std::uint64_t total_errors = 0;
  std::uint64_t refused_connections = 0;  ///< Strangers dropped by the listener.
  double avg_latency_ms = 0;              ///< Submitted until done.
  double p50_latency_ms = 0;              ///< From a histogram: within 5 %.
  double p99_latency_ms = 0;
  double peak_throughput_gbps =
      0;  ///< Highest payload gigabits per second of one call of at least 64 KiB.
  double avg_sync_ms = 0;
  double avg_network_ms = 0;
  double avg_reduce_ms = 0;
  double avg_queue_wait_ms = 0;
  double avg_execution_ms = 0;
  /// Memory that the process holds to pass data on, now and at most: what it shares with the other
  /// ranks of its node, receive buffers, and room for sums under way. Not reset, but for the most.
  std::uint64_t staging_bytes = 0;
  std::uint64_t peak_staging_bytes = 0;
};

/// One finished call.
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

/// Thread-safe; constant cost and memory per call.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// A call; its times count for `weight` calls, of which others are only counted.
  void record(const CallSample& call, std::uint32_t weight = 1);
  /// A call that succeeded and was not timed: reading the clock would take as long as it did.
  void record_untimed(const CallSample& call);
  void record_refused_connection();
  /// Memory for passing data on that was taken, or given back when negative.
  void record_staging(std::int64_t bytes);
  MetricsSummary summary() const;
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The summary as an aligned two-column table of several lines.
std::string to_table(const MetricsSummary& summary);

}  // namespace mccl
