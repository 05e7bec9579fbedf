// Defines the module mccl._core, the parts of the library that the Python package needs even
// without torch or MLX. This file owns the Metrics object that counts the calls of all groups of
// the process.
#include "python/errors.h"
// The include above must stay first: it makes the error types visible to other libraries (see
// errors.h).
#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "mccl/host.h"
#include "mccl/metrics.h"
#include "python/capsule.h"
#include "python/shared_metrics.h"

namespace mccl::python {

namespace nb = nanobind;

namespace {

/// The metrics of the process. Accessed with the GIL held; the Metrics itself is thread-safe.
struct ProcessMetrics {
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
  bool shared = false;  ///< True once share_metrics() was called, so that a group can be made.
  int rank = -1;        ///< Rank of this process in the newest group.
};

ProcessMetrics& process_metrics() {
  static ProcessMetrics instance;
  return instance;
}

nb::object share_metrics(int rank) {
  ProcessMetrics& process = process_metrics();
  process.shared = true;
  process.rank = rank;
  return capsule_of(process.metrics, kMetricsCapsule);
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

std::string flight_record() {
  const std::shared_ptr<Metrics> metrics = process_metrics().metrics;
  const nb::gil_scoped_release release;
  return metrics->flight_record();
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
  module.def("flight_record", &flight_record,
             "JSON text of the last calls; empty before any group was made.");
  module.def("record_call", &record_call, nb::kw_only(), "queue_wait_s"_a = 0.0,
             "execution_s"_a = 0.0, "network_s"_a = 0.0, "reduce_s"_a = 0.0, "payload_bytes"_a = 0,
             "bytes_sent"_a = 0, "bytes_received"_a = 0, "failed"_a = false,
             "Counts one finished call that did not run through a group of the library.");
}

}  // namespace

/// Defined in configuration.cpp.
void bind_configuration(nb::module_& module);

}  // namespace mccl::python

NB_MODULE(_core, module) {
  module.doc() = "Settings and metrics of libmccl.";
  mccl::python::bind_errors();
  mccl::python::bind_configuration(module);
  mccl::python::bind_metrics(module);
}
