// Settings as Python sees them: dictionaries of text, which the library's table of settings checks.
#pragma once

#include <nanobind/nanobind.h>

namespace mccl::python {

/// Adds settings, settings_markdown and the config_* functions.
void bind_configuration(nanobind::module_& module);

}  // namespace mccl::python
