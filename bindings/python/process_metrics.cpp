#include "python/process_metrics.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "base/log.h"
#include "mccl/metrics.h"
#include "python/shared_metrics.h"

namespace mccl::python {

namespace nb = nanobind;

namespace {

/// Touched with the GIL held only; the Metrics itself is thread-safe.
struct ProcessMetrics {
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
  bool shared = false;  ///< A group was made.
  int rank = -1;        ///< Of the group made last.
};

ProcessMetrics& process_metrics() {
  static ProcessMetrics instance;
  return instance;
}

nb::object share_metrics(int rank) {
  ProcessMetrics& process = process_metrics();
  process.shared = true;
  process.rank = rank;
  auto pointer = std::make_unique<std::shared_ptr<Metrics>>(process.metrics);
  nb::capsule capsule(pointer.get(), kMetricsCapsule, [](void* held) noexcept {
    delete static_cast<std::shared_ptr<Metrics>*>(held);
  });
  pointer.release();
  return capsule;
}

nb::object metrics_summary() {
  const MetricsSummary summary = process_metrics().metrics->summary();
  if (!process_metrics().shared && summary.total_ops == 0) return nb::none();
  nb::dict fields;
  fields["total_ops"] = summary.total_ops;
  fields["total_bytes_sent"] = summary.total_bytes_sent;
  fields["total_bytes_recv"] = summary.total_bytes_recv;
  fields["total_errors"] = summary.total_errors;
  fields["refused_connections"] = summary.refused_connections;
  fields["avg_latency_ms"] = summary.avg_latency_ms;
  fields["p50_latency_ms"] = summary.p50_latency_ms;
  fields["p99_latency_ms"] = summary.p99_latency_ms;
  fields["peak_throughput_gbps"] = summary.peak_throughput_gbps;
  fields["avg_sync_ms"] = summary.avg_sync_ms;
  fields["avg_network_ms"] = summary.avg_network_ms;
  fields["avg_reduce_ms"] = summary.avg_reduce_ms;
  fields["avg_queue_wait_ms"] = summary.avg_queue_wait_ms;
  fields["avg_execution_ms"] = summary.avg_execution_ms;
  fields["staging_bytes"] = summary.staging_bytes;
  fields["peak_staging_bytes"] = summary.peak_staging_bytes;
  return fields;
}

std::string metrics_table() { return to_table(process_metrics().metrics->summary()); }

void log_metrics() {
  // Asked for in so many words, so the log level does not hide it.
  Log(process_metrics().rank, LogLevel::info).write(LogLevel::info, metrics_table());
}

void record_call(double queue_wait_s, double execution_s, double network_s, double reduce_s,
                 std::uint64_t payload_bytes, std::uint64_t bytes_sent,
                 std::uint64_t bytes_received, bool failed) {
  process_metrics().metrics->record({.queue_wait_s = queue_wait_s,
                                     .execution_s = execution_s,
                                     .network_s = network_s,
                                     .reduce_s = reduce_s,
                                     .payload_bytes = payload_bytes,
                                     .bytes_sent = bytes_sent,
                                     .bytes_received = bytes_received,
                                     .failed = failed});
}

}  // namespace

void bind_metrics(nb::module_& module) {
  using nb::literals::operator""_a;
  module.def("share_metrics", &share_metrics, "rank"_a = -1,
             "A capsule with the process's metrics, for an extension module that makes a group.");
  module.def("metrics_summary", &metrics_summary,
             "The fields of MetricsSummary, or None before any group was made or call counted.");
  module.def("metrics_table", &metrics_table, "The summary as an aligned table.");
  module.def("log_metrics", &log_metrics, "Writes the table to stderr.");
  module.def(
      "reset_metrics", [] { process_metrics().metrics->reset(); }, "Zeroes every counter.");
  module.def("record_call", &record_call, nb::kw_only(), "queue_wait_s"_a = 0.0,
             "execution_s"_a = 0.0, "network_s"_a = 0.0, "reduce_s"_a = 0.0, "payload_bytes"_a = 0,
             "bytes_sent"_a = 0, "bytes_received"_a = 0, "failed"_a = false,
             "Counts one finished call that did not run through a group of the library.");
}

}  // namespace mccl::python
