// mccl._core: what the Python package needs of the library without a framework.
#include "python/errors.h"
// The errors come first.
#include "python/configuration.h"
#include "python/process_metrics.h"

NB_MODULE(_core, module) {
  module.doc() = "Settings and metrics of libmccl.";
  mccl::python::bind_errors();
  mccl::python::bind_configuration(module);
  mccl::python::bind_metrics(module);
}
