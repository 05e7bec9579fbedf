// The ABIs of MPI libraries that this build knows. What each header of MPI's would say is declared
// here, so that a build needs no MPI; where one is installed, tests/backend/abi compares.
#pragma once

#include <memory>

#include "backend/mpi/library.h"
#include "backend/mpi/symbols.h"

namespace mccl::mpi {

/// Open MPI 3 to 5.
std::unique_ptr<Library> open_mpi_library(const Symbols& symbols);
/// MPICH 3.1 and later, Intel MPI, MVAPICH, Cray MPICH: what the "MPICH ABI compatibility
/// initiative" has agreed on.
std::unique_ptr<Library> mpich_library(const Symbols& symbols);
/// The one that MPI 5 defines, whoever made the library.
std::unique_ptr<Library> standard_library(const Symbols& symbols);

}  // namespace mccl::mpi
