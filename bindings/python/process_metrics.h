// The metrics of this process: the one Metrics that all its groups count into, as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

namespace mccl::python {

/// Adds share_metrics, metrics_summary, metrics_table, log_metrics, reset_metrics, record_call.
void bind_metrics(nanobind::module_& module);

}  // namespace mccl::python
