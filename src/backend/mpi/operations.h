// The reductions as MPI is told them: its own where they give what ours give, else the kernels as
// operations of our own (16-bit floats, bool, and min and max of floats, which keep NaN).
#pragma once

#include "backend/mpi/library.h"
#include "mccl/types.h"

namespace mccl::mpi {

class Operations {
 public:
  /// Makes operations in `library`, which keeps them until it ends.
  explicit Operations(Library& library);

  /// For all that supports() allows. avg and premul_sum add.
  Handle of(DType dtype, ReduceKind kind) const {
    return handles_[static_cast<int>(dtype)][static_cast<int>(kind)];
  }

 private:
  Handle handles_[kDTypeCount][kReduceKindCount] = {};
};

}  // namespace mccl::mpi
