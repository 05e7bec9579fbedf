// Maps each reduction and element type to an MPI operation (MPI_Op). If MPI predefines an operation
// with the same result as MCCL's kernel, that one is used. Otherwise the kernel is registered as a
// user-defined operation: for 16-bit floats, for bool, and for min and max of floats, which keep
// NaN.
#pragma once

#include "backend/mpi/library.h"
#include "mccl/types.h"

namespace mccl::mpi {

/// Table of MPI operations, indexed by element type and reduction.
class Operations {
 public:
  /// Registers the kernels in `library`. The registered operations are never freed.
  explicit Operations(Library& library);

  /// Returns the operation for a combination that supports() allows. For avg and premul_sum,
  /// returns the operation for sum.
  Handle of(DType dtype, ReduceKind kind) const {
    return handles_[static_cast<int>(dtype)][static_cast<int>(kind)];
  }

 private:
  Handle handles_[kDTypeCount][kReduceKindCount] = {};
};

}  // namespace mccl::mpi
