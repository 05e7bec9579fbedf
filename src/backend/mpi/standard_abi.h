// The ABI that MPI 5 defines: handles are pointers whose values are fixed.
#pragma once

#include <cstdint>

namespace mccl::mpi::standard {

// Values of the constants in mpi.h, followed by the layout of MPI_Status.
inline constexpr std::uintptr_t kWorld = 0x101;
inline constexpr std::uintptr_t kSelf = 0x102;
inline constexpr std::uintptr_t kErrorsReturn = 0x143;
inline constexpr std::uintptr_t kNoRequest = 0x180;
inline constexpr std::uintptr_t kByte = 0x247;
inline constexpr std::uintptr_t kUint8 = 0x241;
inline constexpr std::uintptr_t kInt8 = 0x240;
inline constexpr std::uintptr_t kUint16 = 0x249;
inline constexpr std::uintptr_t kInt16 = 0x248;
inline constexpr std::uintptr_t kUint32 = 0x251;
inline constexpr std::uintptr_t kInt32 = 0x250;
inline constexpr std::uintptr_t kUint64 = 0x259;
inline constexpr std::uintptr_t kInt64 = 0x258;
inline constexpr std::uintptr_t kFloat = 0x210;
inline constexpr std::uintptr_t kDouble = 0x214;
inline constexpr std::uintptr_t kFloatComplex = 0x212;
inline constexpr std::uintptr_t kDoubleComplex = 0x216;
inline constexpr std::uintptr_t kSum = 0x21;
inline constexpr std::uintptr_t kMin = 0x22;
inline constexpr std::uintptr_t kMax = 0x23;
inline constexpr std::uintptr_t kProduct = 0x24;
inline constexpr std::uintptr_t kBand = 0x28;
inline constexpr std::uintptr_t kBor = 0x29;
inline constexpr std::uintptr_t kBxor = 0x2a;
inline constexpr int kAnySource = -1;
inline constexpr int kTagBound = 501;
inline constexpr int kTruncated = 15;
inline constexpr int kLevels[] = {0, 1024, 2048, 4096};
inline void* const kInPlace = reinterpret_cast<void*>(1);

struct Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int internal[5];
};

}  // namespace mccl::mpi::standard
