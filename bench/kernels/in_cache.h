// Helpers of the kernel benchmarks: aligned memory, and counting of bytes.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/instruction_set.h"

namespace mccl::kernels {

inline constexpr int kSmallest = 4 << 10;
inline constexpr int kLargest = 256 << 10;
inline constexpr std::size_t kAlignment = 64;

/// Aligned memory of zeros. Sums of zeros stay zero, so no iteration computes with subnormals.
class Zeros {
 public:
  explicit Zeros(std::size_t bytes) : memory_(bytes + kAlignment) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = (kAlignment - address % kAlignment) % kAlignment;
  }
  std::byte* data() { return memory_.data() + begin_; }

 private:
  std::vector<std::byte> memory_;
  std::size_t begin_;
};

inline void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.SetLabel(std::string(instruction_set()));
}

}  // namespace mccl::kernels
