// Instructions for which CUDA C++ has no function. Tests define these functions for the host, on
// which they run the kernels (tests/kernels/cuda/gpu_on_host.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace mccl::kernels::cuda {

struct alignas(16) Line {
  std::uint32_t words[4];
};

#ifdef __CUDACC__
namespace {

__device__ __forceinline__ std::uint64_t now_ns() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

/// Stores a word that other GPUs read. Those GPUs see the earlier stores of the block before they
/// see the word.
__device__ __forceinline__ void store_release(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// Stores a line that other GPUs read. Other GPUs see either the whole line or none of it.
__device__ __forceinline__ void store_whole(std::byte* to, const Line& line) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(line.words[0]),
               "r"(line.words[1]), "r"(line.words[2]), "r"(line.words[3])
               : "memory");
}

__device__ __forceinline__ Line load_whole(const std::byte* from) {
  Line line;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.words[0]), "=r"(line.words[1]), "=r"(line.words[2]), "=r"(line.words[3])
               : "l"(from)
               : "memory");
  return line;
}

/// Must be called by a whole warp. If eight adjacent lanes store a line of 128 bytes, GPUs joined
/// by NVLink see either the whole line or none of it.
__device__ __forceinline__ void store_by_warp(std::byte* to, const Line& line) {
  store_whole(to, line);
}

/// Must be called by a whole warp, which loads each line of 128 bytes as a whole.
__device__ __forceinline__ Line load_by_warp(const std::byte* from) { return load_whole(from); }

}  // namespace
#endif

}  // namespace mccl::kernels::cuda
