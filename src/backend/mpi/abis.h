// The ABIs of MPI libraries that MCCL supports. MCCL declares their types and constants itself, so
// that a build needs no MPI. Where an MPI is installed, tests/backend/abi compares them with its
// header.
#pragma once

#include <memory>

#include "backend/mpi/library.h"
#include "base/library.h"

namespace mccl::mpi {

/// Open MPI 3 to 5.
std::unique_ptr<Library> open_mpi_library(const SharedLibrary& file);
/// MPICH 3.1 and later, Intel MPI, MVAPICH and Cray MPICH. They share the ABI of the "MPICH ABI
/// compatibility initiative".
std::unique_ptr<Library> mpich_library(const SharedLibrary& file);
/// Any library with the ABI that MPI 5 defines.
std::unique_ptr<Library> standard_library(const SharedLibrary& file);

}  // namespace mccl::mpi
