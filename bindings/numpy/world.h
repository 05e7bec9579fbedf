// This process's membership in a job, as Python sees it. A process has at most one.
#pragma once

#include <nanobind/nanobind.h>

namespace mccl::numpy {

/// Adds start, world, shutdown and the hooks around fork().
void bind_world(nanobind::module_& module);

}  // namespace mccl::numpy
