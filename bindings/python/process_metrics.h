// The metrics of this process for Python: the one Metrics in which all its groups are counted.
#pragma once

#include <nanobind/nanobind.h>

namespace mccl::python {

/// Adds share_metrics, metrics_summary, metrics_table, log_metrics, reset_metrics, record_call.
void bind_metrics(nanobind::module_& module);

}  // namespace mccl::python
