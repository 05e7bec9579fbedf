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

/// Times are averages in milliseconds unless named otherwise, over calls that succeeded; of calls
/// of a microsecond or less, one in a few is timed and stands for the others. For one call: queue
/// wait = submitted until started; execution = started until done; network = time spent moving
/// bytes; reduce = time spent in arithmetic; sync = the rest of execution, waiting for peers.
struct MetricsSummary {
  std::uint64_t total_ops = 0;
  std::uint64_t total_bytes_sent = 0;
  std::uint64_t total_bytes_recv = 0;
  std::uint64_t total_errors = 0;
  std::uint64_t refused_connections = 0;  ///< Strangers dropped, at rank 0's store too.
  double avg_latency_ms = 0;              ///< Submitted until done.
  double p50_latency_ms = 0;              ///< From a histogram: within 5 %.
  double p99_latency_ms = 0;
  double peak_throughput_gbps = 0;  ///< Highest payload gigabits per second of one timed call.
  double avg_sync_ms = 0;
  double avg_network_ms = 0;
  double avg_reduce_ms = 0;
  double avg_queue_wait_ms = 0;
  double avg_execution_ms = 0;
  /// Memory that the process holds to pass data on, now and at most: what it shares with the other
  /// ranks of its node, receive buffers, and room for sums under way. Not reset, but for the most.
  std::uint64_t staging_bytes = 0;
  std::uint64_t peak_staging_bytes = 0;
  /// Pinned host memory of the process, now and at most, which calls on GPU memory are staged
  /// through. At most MCCL_PINNED_LIMIT_BYTES of it per GPU stays when no call uses it.
  std::uint64_t pinned_bytes = 0;
  std::uint64_t peak_pinned_bytes = 0;
  /// Links to other ranks that came about, by what they run through. Not reset.
  std::uint64_t shm_links = 0;
  std::uint64_t rdma_links = 0;
  std::uint64_t tcp_links = 0;
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

/// Counts calls that are so short that even an atomic addition would show. One thread at a time
/// counts, others may read.
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

/// Thread-safe; constant cost and memory per call.
class MCCL_API Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// A call; its times count for `weight` calls, of which others are only counted.
  void record(const CallSample& call, std::uint32_t weight = 1);
  /// A new tally of calls that succeed and are not timed. What it has counted stays counted.
  std::shared_ptr<Tally> tally();
  void record_refused_connection();
  /// A link came about, by "shm", "rdma" or "tcp".
  void record_link(std::string_view transport);
  /// Memory for passing data on that was taken, or given back when negative.
  void record_staging(std::int64_t bytes);
  /// Records the algorithm that calls of the collective use from now on. `algorithm` must refer to
  /// text that is never freed.
  void record_algorithm(Collective collective, std::string_view algorithm);
  /// Algorithm of the last call of the collective, over all groups; empty before the first call.
  std::string_view algorithm_of(Collective collective) const;
  MetricsSummary summary() const;
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The summary as an aligned two-column table of several lines.
MCCL_API std::string to_table(const MetricsSummary& summary);

}  // namespace mccl
