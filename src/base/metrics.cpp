#include "mccl/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "base/flight_recorder.h"
#include "base/histogram.h"
#include "base/pinned_memory.h"

namespace mccl {

namespace {

double duration(double seconds) { return seconds > 0 && std::isfinite(seconds) ? seconds : 0; }

std::string with_unit(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 7> kUnits = {"B",   "KiB", "MiB", "GiB",
                                                      "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  // A value of 1023.95 or more would be shown as 1024.0, so the next unit is used.
  for (; value >= 1023.95 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace

/// The times in Counters include successful calls only, because the time of a call that timed out
/// does not measure the network.
struct Metrics::State {
  struct Totals {
    std::uint64_t calls = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;

    void add(std::uint64_t more_calls, std::uint64_t more_sent, std::uint64_t more_received) {
      calls += more_calls;
      sent += more_sent;
      received += more_received;
    }
  };
  struct Counters {
    std::uint64_t timed = 0;
    std::uint64_t errors = 0;
    std::uint64_t refused_connections = 0;
    std::uint64_t repaired_links = 0;
    double latency_s = 0;
    double queue_wait_s = 0;
    double execution_s = 0;
    double network_s = 0;
    double reduce_s = 0;
    double sync_s = 0;
    double peak_bits_per_s = 0;
    Histogram latencies;
  };

  mutable std::mutex mutex;  // guards the members below; held briefly
  Counters counters;
  std::array<std::string_view, kCollectiveCount> algorithms;  // indexed by collective
  std::uint64_t shm_links = 0;
  std::uint64_t rdma_links = 0;
  std::uint64_t tcp_links = 0;
  std::int64_t staging_bytes = 0;
  std::int64_t peak_staging_bytes = 0;
  Totals counted;
  std::vector<std::shared_ptr<Tally>> tallies;
  std::shared_ptr<const FlightRecorder> recorder;  // the recorder of the context made last
  Totals before_reset;                             // totals() at the last reset

  /// Removes each Tally that no other object refers to any more, and adds its counts to `counted`.
  void settle_tallies() {
    std::erase_if(tallies, [this](const std::shared_ptr<Tally>& tally) {
      if (tally.use_count() > 1) return false;
      counted.add(tally->calls(), tally->bytes_sent(), tally->bytes_received());
      return true;
    });
  }

  /// Counts since construction, regardless of resets.
  Totals totals() const {
    Totals sum = counted;
    for (const std::shared_ptr<Tally>& tally : tallies) {
      sum.add(tally->calls(), tally->bytes_sent(), tally->bytes_received());
    }
    return sum;
  }
};

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

std::shared_ptr<Tally> Metrics::tally() {
  const std::lock_guard lock(state_->mutex);
  state_->settle_tallies();
  return state_->tallies.emplace_back(std::make_shared<Tally>());
}

void Metrics::record(const CallSample& call, std::uint32_t weight) {
  const double queue_wait = duration(call.queue_wait_s);
  const double execution = duration(call.execution_s);
  const double network = duration(call.network_s);
  const double reduce = duration(call.reduce_s);
  const double sync = std::max(0.0, execution - network - reduce);

  const std::lock_guard lock(state_->mutex);
  state_->counted.add(1, call.bytes_sent, call.bytes_received);
  State::Counters& counters = state_->counters;
  if (call.failed) {
    ++counters.errors;
    return;
  }
  const double times = weight;
  counters.timed += weight;
  counters.queue_wait_s += times * queue_wait;
  counters.execution_s += times * execution;
  counters.network_s += times * network;
  counters.reduce_s += times * reduce;
  counters.sync_s += times * sync;
  counters.latency_s += times * (queue_wait + execution);
  counters.latencies.add(queue_wait + execution, weight);
  if (execution > 0)
    counters.peak_bits_per_s =
        std::max(counters.peak_bits_per_s, 8 * static_cast<double>(call.payload_bytes) / execution);
}

void Metrics::record_refused_connection() {
  const std::lock_guard lock(state_->mutex);
  ++state_->counters.refused_connections;
}

void Metrics::record_link(std::string_view transport) {
  const std::lock_guard lock(state_->mutex);
  if (transport == "shm") ++state_->shm_links;
  if (transport == "rdma") ++state_->rdma_links;
  if (transport == "tcp") ++state_->tcp_links;
}

void Metrics::record_repaired_link() {
  const std::lock_guard lock(state_->mutex);
  ++state_->counters.repaired_links;
}

void Metrics::record_staging(std::int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->staging_bytes += bytes;
  state_->peak_staging_bytes = std::max(state_->peak_staging_bytes, state_->staging_bytes);
}

void Metrics::record_algorithm(Collective collective, std::string_view algorithm) {
  const std::lock_guard lock(state_->mutex);
  state_->algorithms[static_cast<std::size_t>(collective)] = algorithm;
}

std::string_view Metrics::algorithm_of(Collective collective) const {
  const std::lock_guard lock(state_->mutex);
  return state_->algorithms[static_cast<std::size_t>(collective)];
}

void Metrics::keep(std::shared_ptr<const FlightRecorder> recorder) {
  const std::lock_guard lock(state_->mutex);
  state_->recorder = std::move(recorder);
}

std::string Metrics::flight_record() const {
  std::shared_ptr<const FlightRecorder> recorder;
  {
    const std::lock_guard lock(state_->mutex);
    recorder = state_->recorder;
  }
  return recorder ? recorder->to_json("asked") : "";
}

MetricsSummary Metrics::summary() const {
  const std::lock_guard lock(state_->mutex);
  const State::Counters& counters = state_->counters;
  const State::Totals total = state_->totals();
  const State::Totals& before = state_->before_reset;
  const auto average_ms = [&](double sum_s) {
    return counters.timed == 0 ? 0 : 1e3 * sum_s / static_cast<double>(counters.timed);
  };
  return {
      .total_ops = total.calls - before.calls,
      .total_bytes_sent = total.sent - before.sent,
      .total_bytes_recv = total.received - before.received,
      .total_errors = counters.errors,
      .refused_connections = counters.refused_connections,
      .avg_latency_ms = average_ms(counters.latency_s),
      .p50_latency_ms = 1e3 * counters.latencies.quantile(0.50),
      .p99_latency_ms = 1e3 * counters.latencies.quantile(0.99),
      .peak_throughput_gbps = counters.peak_bits_per_s / 1e9,
      .avg_sync_ms = average_ms(counters.sync_s),
      .avg_network_ms = average_ms(counters.network_s),
      .avg_reduce_ms = average_ms(counters.reduce_s),
      .avg_queue_wait_ms = average_ms(counters.queue_wait_s),
      .avg_execution_ms = average_ms(counters.execution_s),
      .staging_bytes = static_cast<std::uint64_t>(state_->staging_bytes),
      .peak_staging_bytes = static_cast<std::uint64_t>(state_->peak_staging_bytes),
      .pinned_bytes = pinned_memory().bytes(),
      .peak_pinned_bytes = pinned_memory().peak_bytes(),
      .shm_links = state_->shm_links,
      .rdma_links = state_->rdma_links,
      .tcp_links = state_->tcp_links,
      .repaired_links = counters.repaired_links,
  };
}

void Metrics::reset() {
  const std::lock_guard lock(state_->mutex);
  state_->counters = {};
  state_->peak_staging_bytes = state_->staging_bytes;
  pinned_memory().reset_peak();
  state_->before_reset = state_->totals();
}

std::string to_table(const MetricsSummary& summary) {
  const auto ms = [](double value) { return fmt::format("{:.3f} ms", value); };
  const std::vector<std::pair<std::string_view, std::string>> rows = {
      {"calls", fmt::format("{}", summary.total_ops)},
      {"errors", fmt::format("{}", summary.total_errors)},
      {"refused connections", fmt::format("{}", summary.refused_connections)},
      {"sent", with_unit(summary.total_bytes_sent)},
      {"received", with_unit(summary.total_bytes_recv)},
      {"latency, average", ms(summary.avg_latency_ms)},
      {"latency, p50", ms(summary.p50_latency_ms)},
      {"latency, p99", ms(summary.p99_latency_ms)},
      {"queue wait, average", ms(summary.avg_queue_wait_ms)},
      {"execution, average", ms(summary.avg_execution_ms)},
      {"  network", ms(summary.avg_network_ms)},
      {"  reduce", ms(summary.avg_reduce_ms)},
      {"  sync", ms(summary.avg_sync_ms)},
      {"peak throughput", fmt::format("{:.2f} Gbit/s", summary.peak_throughput_gbps)},
      {"staging memory", with_unit(summary.staging_bytes)},
      {"staging memory, peak", with_unit(summary.peak_staging_bytes)},
      {"pinned memory", with_unit(summary.pinned_bytes)},
      {"pinned memory, peak", with_unit(summary.peak_pinned_bytes)},
      {"links, shared memory", fmt::format("{}", summary.shm_links)},
      {"links, RDMA", fmt::format("{}", summary.rdma_links)},
      {"links, TCP", fmt::format("{}", summary.tcp_links)},
      {"links, repaired", fmt::format("{}", summary.repaired_links)},
  };
  std::size_t name_width = 0, value_width = 0;
  for (const auto& [name, value] : rows) {
    name_width = std::max(name_width, name.size());
    value_width = std::max(value_width, value.size());
  }
  std::string table;
  for (const auto& [name, value] : rows)
    table += fmt::format("{:<{}}  {:>{}}\n", name, name_width, value, value_width);
  return table;
}

}  // namespace mccl
