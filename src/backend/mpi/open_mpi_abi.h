// Open MPI's ABI: handles are addresses of variables in the library.
#pragma once

#include <cstddef>

namespace mccl::mpi::open_mpi {

// Values of the constants in mpi.h, followed by the layout of MPI_Status.
inline constexpr int kAnySource = -1;
inline constexpr int kTagBound = 0;
inline constexpr int kTruncated = 15;
inline constexpr int kLevels[] = {0, 1, 2, 3};
inline void* const kInPlace = reinterpret_cast<void*>(1);

struct Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int cancelled;
  std::size_t bytes;
};

}  // namespace mccl::mpi::open_mpi
