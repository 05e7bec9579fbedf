// The ABIs of MPI libraries that MCCL supports. MCCL declares their constants itself, so that a
// build needs no MPI. Where an MPI is installed, tests/backend/abi compares them with its header.
#pragma once

#include <cstdint>

#include "mccl/types.h"

namespace mccl::mpi {

/// An MPI handle of a communicator, type, operation or request. It is wide enough for every ABI.
using Handle = std::uintptr_t;

/// MPI's thread levels. Their numbers differ between ABIs.
enum class ThreadLevel { single, funneled, serialized, multiple };

/// The predefined reductions of MPI that MCCL uses.
enum class Predefined { sum, product, min, max, band, bor, bxor };
inline constexpr int kPredefinedCount = 7;

/// MPI's constants in one ABI.
struct Abi {
  const char* name;
  bool handles_are_numbers;  ///< True if handles are ints, false if they are pointers.
  Handle world = 0;
  Handle self = 0;
  Handle errors_return = 0;
  Handle no_request = 0;
  Handle byte = 0;
  Handle types[kDTypeCount] = {};  ///< Indexed by DType. 16-bit floats map to u16, bool to u8.
  Handle predefined[kPredefinedCount] = {};  ///< Indexed by Predefined.
  std::intptr_t in_place;
  int any_source;
  int tag_bound;  ///< Key of the attribute MPI_TAG_UB.
  int levels[4];  ///< Indexed by ThreadLevel.
  int source;     ///< Index of MPI_SOURCE in MPI_Status, in units of int.
};

/// Storage for an MPI_Status of any ABI.
struct Status {
  alignas(8) int words[8] = {};
};

/// MPICH 3.1 and later, Intel MPI, MVAPICH and Cray MPICH. They share the ABI of the "MPICH ABI
/// compatibility initiative".
inline constexpr Abi kMpich{.name = "MPICH's ABI",
                            .handles_are_numbers = true,
                            .world = 0x44000000,
                            .self = 0x44000001,
                            .errors_return = 0x54000001,
                            .no_request = 0x2c000000,
                            .byte = 0x4c00010d,
                            .types = {0x4c00013b, 0x4c00013b, 0x4c000137, 0x4c00023c, 0x4c000238,
                                      0x4c00043d, 0x4c000439, 0x4c00083e, 0x4c00083a, 0x4c00023c,
                                      0x4c00023c, 0x4c00040a, 0x4c00080b, 0x4c000840, 0x4c001041},
                            .predefined = {0x58000003, 0x58000004, 0x58000002, 0x58000001,
                                           0x58000006, 0x58000008, 0x5800000a},
                            .in_place = -1,
                            .any_source = -2,
                            .tag_bound = 0x64400001,
                            .levels = {0, 1, 2, 3},
                            .source = 2};

/// Any library with the ABI that MPI 5 defines.
inline constexpr Abi kStandard{.name = "the ABI of MPI 5",
                               .handles_are_numbers = false,
                               .world = 0x101,
                               .self = 0x102,
                               .errors_return = 0x143,
                               .no_request = 0x180,
                               .byte = 0x247,
                               .types = {0x241, 0x241, 0x240, 0x249, 0x248, 0x251, 0x250, 0x259,
                                         0x258, 0x249, 0x249, 0x210, 0x214, 0x212, 0x216},
                               .predefined = {0x21, 0x24, 0x22, 0x23, 0x28, 0x29, 0x2a},
                               .in_place = 1,
                               .any_source = -1,
                               .tag_bound = 501,
                               .levels = {0, 1024, 2048, 4096},
                               .source = 0};

/// Open MPI 3 to 5. Its handles are the addresses of variables in the library.
inline constexpr Abi kOpenMpi{.name = "Open MPI's ABI",
                              .handles_are_numbers = false,
                              .in_place = 1,
                              .any_source = -1,
                              .tag_bound = 0,
                              .levels = {0, 1, 2, 3},
                              .source = 0};

}  // namespace mccl::mpi
