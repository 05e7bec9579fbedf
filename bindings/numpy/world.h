// This process's membership in a job, for Python. A process is in at most one job at a time.
#pragma once

#include <nanobind/nanobind.h>

namespace mccl::numpy {

/// Adds start, world, shutdown and the hooks around fork().
void bind_world(nanobind::module_& module);

}  // namespace mccl::numpy
