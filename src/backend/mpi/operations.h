// MPI's handles of the reductions. MPI's own operation is used if it gives the same result as
// MCCL's kernel. Otherwise the kernel is registered as an MPI operation: for 16-bit floats, for
// bool, and for min and max of floats, which keep NaN.
#pragma once

#include "backend/mpi/library.h"
#include "mccl/types.h"

namespace mccl::mpi {

class Operations {
 public:
  /// Registers the kernels in `library`. They are never freed.
  explicit Operations(Library& library);

  /// Returns the handle for a combination that supports() allows. avg and premul_sum return that of
  /// the sum.
  Handle of(DType dtype, ReduceKind kind) const {
    return handles_[static_cast<int>(dtype)][static_cast<int>(kind)];
  }

 private:
  Handle handles_[kDTypeCount][kReduceKindCount] = {};
};

}  // namespace mccl::mpi
