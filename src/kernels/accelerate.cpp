#include <cstdint>

#include "kernels/unit.h"
#include "mccl/error.h"

#ifdef __APPLE__
extern "C" void vDSP_vadd(const float* a, long stride_a, const float* b, long stride_b, float* sum,
                          long stride_sum, unsigned long n);
#endif

namespace mccl::kernels {

#ifdef __APPLE__

namespace {

/// While a OneNan exists, every NaN that this thread computes is the processor's default NaN, as in
/// all results of MCCL.
class OneNan {
 public:
  OneNan() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(before_ | kDefaultNan));
  }
  ~OneNan() { asm volatile("msr fpcr, %0" : : "r"(before_)); }
  OneNan(const OneNan&) = delete;
  OneNan& operator=(const OneNan&) = delete;

 private:
  static constexpr std::uint64_t kDefaultNan = std::uint64_t{1} << 25;
  std::uint64_t before_ = 0;
};

bool is_aligned(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % alignof(float) == 0;
}

class Accelerate final : public Unit {
 public:
  bool reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst,
              std::size_t n) override {
    const bool adds =
        kind == ReduceKind::sum || kind == ReduceKind::avg || kind == ReduceKind::premul_sum;
    if (dtype != DType::f32 || !adds || n < kLeast) return false;
    if (!is_aligned(a) || !is_aligned(b) || !is_aligned(dst)) return false;
    const OneNan one_nan;
    vDSP_vadd(static_cast<const float*>(a), 1, static_cast<const float*>(b), 1,
              static_cast<float*>(dst), 1, n);
    return true;
  }

 private:
  /// Minimum number of elements for which Accelerate is used. For fewer elements, MCCL's own
  /// kernels are faster.
  static constexpr std::size_t kLeast = 1024;
};

}  // namespace

std::shared_ptr<Unit> make_accelerate() { return std::make_shared<Accelerate>(); }

#else

std::shared_ptr<Unit> make_accelerate() {
  throw InvalidArgument(
      "accelerate=true: Accelerate is available only on macOS; leave the setting out");
}

#endif

}  // namespace mccl::kernels
