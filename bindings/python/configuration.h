// Settings as Python sees them: dictionaries of text, checked by the one table in the library.
#pragma once

#include <nanobind/nanobind.h>

namespace mccl::python {

/// Adds settings, settings_markdown and the config_* functions.
void bind_configuration(nanobind::module_& module);

}  // namespace mccl::python
