// The ABI that MPICH, Intel MPI, MVAPICH and Cray MPICH share: handles are numbers.
#pragma once

namespace mccl::mpi::mpich {

// Values of the constants in mpi.h, followed by the layout of MPI_Status.
inline constexpr int kWorld = 0x44000000;
inline constexpr int kSelf = 0x44000001;
inline constexpr int kErrorsReturn = 0x54000001;
inline constexpr int kNoRequest = 0x2c000000;
inline constexpr int kByte = 0x4c00010d;
inline constexpr int kUint8 = 0x4c00013b;
inline constexpr int kInt8 = 0x4c000137;
inline constexpr int kUint16 = 0x4c00023c;
inline constexpr int kInt16 = 0x4c000238;
inline constexpr int kUint32 = 0x4c00043d;
inline constexpr int kInt32 = 0x4c000439;
inline constexpr int kUint64 = 0x4c00083e;
inline constexpr int kInt64 = 0x4c00083a;
inline constexpr int kFloat = 0x4c00040a;
inline constexpr int kDouble = 0x4c00080b;
inline constexpr int kFloatComplex = 0x4c000840;
inline constexpr int kDoubleComplex = 0x4c001041;
inline constexpr int kMax = 0x58000001;
inline constexpr int kMin = 0x58000002;
inline constexpr int kSum = 0x58000003;
inline constexpr int kProduct = 0x58000004;
inline constexpr int kBand = 0x58000006;
inline constexpr int kBor = 0x58000008;
inline constexpr int kBxor = 0x5800000a;
inline constexpr int kAnySource = -2;
inline constexpr int kTagBound = 0x64400001;
inline constexpr int kTruncated = 14;
inline constexpr int kLevels[] = {0, 1, 2, 3};
// NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI defines the constant as -1
inline void* const kInPlace = reinterpret_cast<void*>(-1);

struct Status {
  int count_low;
  int count_high_and_cancelled;
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
};

}  // namespace mccl::mpi::mpich
