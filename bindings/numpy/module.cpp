// mccl._distributed: the compiled part of mccl.distributed.
#include "python/errors.h"
// errors.h must be included first.
#include "numpy/array.h"
#include "numpy/group.h"
#include "numpy/work.h"
#include "numpy/world.h"

NB_MODULE(_distributed, module) {
  module.doc() = "Groups of ranks whose calls take arrays.";
  mccl::numpy::load_numpy();
  mccl::python::bind_errors();
  mccl::numpy::bind_work(module);
  mccl::numpy::bind_group(module);
  mccl::numpy::bind_world(module);
}
