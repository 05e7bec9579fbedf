#include "python/process_metrics.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "mccl/host.h"
#include "mccl/metrics.h"
#include "python/shared_metrics.h"

namespace mccl::python {

namespace nb = nanobind;

namespace {

/// The metrics of the process. Accessed with the GIL held; the Metrics itself is thread-safe.
struct ProcessMetrics {
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
  bool shared = false;  ///< True once a group was made.
  int rank = -1;        ///< Rank in the group made last.
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

/// Calls `visit` with the name and the value of each field, in the order of MetricsSummary.
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
}

nb::object metrics_summary() {
  const MetricsSummary summary = process_metrics().metrics->summary();
  if (!process_metrics().shared && summary.total_ops == 0) return nb::none();
  nb::dict fields;
  for_each_field(summary, [&](const char* name, auto value) { fields[name] = value; });
  return fields;
}

std::string metrics_table(const nb::dict& fields) {
  MetricsSummary summary;
  for_each_field(summary, [&]<typename Value>(const char* name, Value& value) {
    value = nb::cast<Value>(fields[name]);
  });
  return to_table(summary);
}

void log_metrics() {
  const ProcessMetrics& process = process_metrics();
  const MetricsSummary summary = process.metrics->summary();
  // The user asked for the table explicitly, so the log level does not hide it.
  if (!process.shared && summary.total_ops == 0) {
    return log_info(
        process.rank,
        "log_metrics: this process has no group yet; call it after init_process_group or init");
  }
  log_info(process.rank, to_table(summary));
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
  module.def("metrics_table", &metrics_table, "fields"_a,
             "The result of metrics_summary as an aligned table.");
  module.def("log_metrics", &log_metrics,
             "Writes the table to stderr, or a note that no group exists.");
  module.def(
      "reset_metrics", [] { process_metrics().metrics->reset(); }, "Zeroes every counter.");
  module.def("record_call", &record_call, nb::kw_only(), "queue_wait_s"_a = 0.0,
             "execution_s"_a = 0.0, "network_s"_a = 0.0, "reduce_s"_a = 0.0, "payload_bytes"_a = 0,
             "bytes_sent"_a = 0, "bytes_received"_a = 0, "failed"_a = false,
             "Counts one finished call that did not run through a group of the library.");
}

}  // namespace mccl::python
