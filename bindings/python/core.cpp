// mccl._core: the parts of the library that the Python package needs without a framework.
#include "python/errors.h"
// errors.h must be included first.
#include "python/configuration.h"
#include "python/process_metrics.h"

NB_MODULE(_core, module) {
  module.doc() = "Settings and metrics of libmccl.";
  mccl::python::bind_errors();
  mccl::python::bind_configuration(module);
  mccl::python::bind_metrics(module);
}
