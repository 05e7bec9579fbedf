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

void add(MetricsSummary& summary, const Tally& tally) {
  summary.total_ops += tally.calls();
  summary.total_bytes_sent += tally.bytes_sent();
  summary.total_bytes_recv += tally.bytes_received();
}

}  // namespace

struct Metrics::State {
  mutable std::mutex mutex;  // guards the members below; held briefly
  /// The summary, with sums in place of averages, and without the counts of `tallies`. The times
  /// include successful calls only, because the time of a call that timed out does not measure the
  /// network.
  MetricsSummary sums;
  std::uint64_t timed = 0;  // number of calls in the sums of times
  Histogram latencies;
  std::array<std::string_view, kCollectiveCount> algorithms;  // indexed by collective
  std::vector<std::shared_ptr<Tally>> tallies;
  std::shared_ptr<const FlightRecorder> recorder;  // the recorder of the context made last
};

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

std::shared_ptr<Tally> Metrics::tally() {
  const std::lock_guard lock(state_->mutex);
  // Removes each Tally that no other object refers to any more, but keeps its counts.
  std::erase_if(state_->tallies, [this](const std::shared_ptr<Tally>& tally) {
    if (tally.use_count() > 1) return false;
    add(state_->sums, *tally);
    return true;
  });
  return state_->tallies.emplace_back(std::make_shared<Tally>());
}

void Metrics::record(const CallSample& call, std::uint32_t weight) {
  const double queue_wait = duration(call.queue_wait_s);
  const double execution = duration(call.execution_s);
  const double network = duration(call.network_s);
  const double reduce = duration(call.reduce_s);
  const double sync = std::max(0.0, execution - network - reduce);

  const std::lock_guard lock(state_->mutex);
  MetricsSummary& sums = state_->sums;
  ++sums.total_ops;
  sums.total_bytes_sent += call.bytes_sent;
  sums.total_bytes_recv += call.bytes_received;
  if (call.failed) {
    ++sums.total_errors;
    return;
  }
  const double ms = 1e3 * weight;
  state_->timed += weight;
  sums.avg_queue_wait_ms += ms * queue_wait;
  sums.avg_execution_ms += ms * execution;
  sums.avg_network_ms += ms * network;
  sums.avg_reduce_ms += ms * reduce;
  sums.avg_sync_ms += ms * sync;
  sums.avg_latency_ms += ms * (queue_wait + execution);
  state_->latencies.add(queue_wait + execution, weight);
  if (execution > 0)
    sums.peak_throughput_gbps = std::max(
        sums.peak_throughput_gbps, 8e-9 * static_cast<double>(call.payload_bytes) / execution);
}

void Metrics::record_refused_connection() {
  const std::lock_guard lock(state_->mutex);
  ++state_->sums.refused_connections;
}

void Metrics::record_link(std::string_view transport) {
  const std::lock_guard lock(state_->mutex);
  if (transport == "shm") ++state_->sums.shm_links;
  if (transport == "rdma") ++state_->sums.rdma_links;
  if (transport == "tcp") ++state_->sums.tcp_links;
}

void Metrics::record_repaired_link() {
  const std::lock_guard lock(state_->mutex);
  ++state_->sums.repaired_links;
}

void Metrics::record_staging(std::int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  MetricsSummary& sums = state_->sums;
  sums.staging_bytes += static_cast<std::uint64_t>(bytes);
  sums.peak_staging_bytes = std::max(sums.peak_staging_bytes, sums.staging_bytes);
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
  MetricsSummary summary = state_->sums;
  for (const std::shared_ptr<Tally>& tally : state_->tallies) add(summary, *tally);
  for (double* const time :
       {&summary.avg_latency_ms, &summary.avg_sync_ms, &summary.avg_network_ms,
        &summary.avg_reduce_ms, &summary.avg_queue_wait_ms, &summary.avg_execution_ms}) {
    *time /= static_cast<double>(std::max<std::uint64_t>(state_->timed, 1));
  }
  summary.p50_latency_ms = 1e3 * state_->latencies.quantile(0.50);
  summary.p99_latency_ms = 1e3 * state_->latencies.quantile(0.99);
  summary.pinned_bytes = pinned_memory().bytes();
  summary.peak_pinned_bytes = pinned_memory().peak_bytes();
  return summary;
}

void Metrics::reset() {
  const std::lock_guard lock(state_->mutex);
  const MetricsSummary& before = state_->sums;
  MetricsSummary sums{.staging_bytes = before.staging_bytes,
                      .peak_staging_bytes = before.staging_bytes,
                      .shm_links = before.shm_links,
                      .rdma_links = before.rdma_links,
                      .tcp_links = before.tcp_links};
  // The counts of the tallies up to now do not count any more. The sums may wrap around below 0.
  for (const std::shared_ptr<Tally>& tally : state_->tallies) {
    sums.total_ops -= tally->calls();
    sums.total_bytes_sent -= tally->bytes_sent();
    sums.total_bytes_recv -= tally->bytes_received();
  }
  state_->sums = sums;
  state_->timed = 0;
  state_->latencies = {};
  pinned_memory().reset_peak();
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
