#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/metal/driver.h"
#include "kernels/metal/source.h"
#include "kernels/unit.h"
#include "mccl/error.h"

namespace mccl::kernels {
namespace metal {
namespace {

using device::metal::MetalDriver;

class Reducer final : public Unit {
 public:
  Reducer(std::shared_ptr<MetalDriver> driver, const ReducerOptions& options)
      : driver_(std::move(driver)),
        kernels_(driver_->load_kernels({options.path, std::string(source()), options.fast_math})),
        threshold_(std::max<std::size_t>(options.threshold, 1)) {}

  ~Reducer() override {
    for (const Buffers& buffers : free_) {
      driver_->free(buffers.first);
      driver_->free(buffers.second);
    }
  }

  bool reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst,
              std::size_t n) override {
    if (n < threshold_) return false;
    const std::string name = kernel_for(dtype, kind);
    if (name.empty()) return false;
    const auto* first = static_cast<const std::byte*>(a);
    const auto* second = static_cast<const std::byte*>(b);
    auto* to = static_cast<std::byte*>(dst);
    for (std::size_t left = n; left > 0;) {
      const std::size_t count = std::min(left, kAtOnce);
      const std::size_t bytes = count * size_of(dtype);
      reduce_some(name, first, second, to, bytes, static_cast<std::uint32_t>(count));
      first += bytes;
      second += bytes;
      to += bytes;
      left -= count;
    }
    return true;
  }

 private:
  /// Maximum number of elements that one kernel reduces. It limits the size of the shared buffers,
  /// which are kept for reuse. Data are copied through them, because the GPU cannot access ordinary
  /// host memory.
  static constexpr std::size_t kAtOnce = std::size_t{8} << 20;
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

  struct Buffers {
    void* first = nullptr;
    void* second = nullptr;
    std::size_t bytes = 0;  ///< Size of each of the two buffers.
  };

  void reduce_some(const std::string& name, const std::byte* a, const std::byte* b, std::byte* dst,
                   std::size_t bytes, std::uint32_t count) {
    const Buffers buffers = take(bytes);
    std::byte* const first = driver_->contents(buffers.first);
    std::memcpy(first, a, bytes);
    std::memcpy(driver_->contents(buffers.second), b, bytes);
    // If run() or passed() throws, the GPU may still use the buffers, so they are not reused.
    const auto fence =
        kernels_->run({name, {buffers.first, 0}, {buffers.second, 0}, {buffers.first, 0}, count});
    while (!fence->passed()) std::this_thread::yield();
    std::memcpy(dst, first, bytes);
    const std::lock_guard lock(mutex_);
    free_.push_back(buffers);
  }

  Buffers take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto fits = [bytes](const Buffers& buffers) { return buffers.bytes >= bytes; };
      const auto found = std::ranges::find_if(free_, fits);
      if (found != free_.end()) {
        const Buffers buffers = *found;
        free_.erase(found);
        return buffers;
      }
    }
    Buffers buffers;
    buffers.bytes = std::bit_ceil(std::max(bytes, kLeastBytes));
    buffers.first = driver_->allocate(buffers.bytes);
    buffers.second = driver_->allocate(buffers.bytes);
    if (buffers.first && buffers.second) return buffers;
    for (void* const one : {buffers.first, buffers.second}) {
      if (one) driver_->free(one);
    }
    throw Error(
        fmt::format("{}: cannot allocate {} bytes of shared memory for reductions on the GPU; set "
                    "reduce_on=cpu to reduce on the CPU",
                    driver_->name(), 2 * buffers.bytes));
  }

  const std::shared_ptr<MetalDriver> driver_;
  const std::shared_ptr<device::metal::Kernels> kernels_;
  const std::size_t threshold_;
  std::mutex mutex_;
  std::vector<Buffers> free_;  // guarded by mutex_
};

}  // namespace

std::string kernel_for(DType dtype, ReduceKind kind) {
  if (dtype != DType::f16 && dtype != DType::bf16) return {};
  const bool adds = kind == ReduceKind::avg || kind == ReduceKind::premul_sum;
  const ReduceKind operation = adds ? ReduceKind::sum : kind;
  if (operation > ReduceKind::max) return {};
  return fmt::format("mccl_{}_{}", name_of(operation), name_of(dtype));
}

}  // namespace metal

std::shared_ptr<Unit> make_reducer(const ReducerOptions& options) {
  try {
    return std::make_shared<metal::Reducer>(device::metal::driver(), options);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("reduce_on=gpu: {}", error.what()));
  }
}

}  // namespace mccl::kernels
