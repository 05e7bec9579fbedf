#include "device/metal/gpu.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "device/metal/driver.h"
#include "device/passage.h"
#include "mccl/error.h"

namespace mccl::device::metal {
namespace {

/// Buffers of shared storage, by where the host sees them.
class Pinned {
 public:
  explicit Pinned(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}

  std::byte* allocate(std::size_t bytes, const std::string& name) {
    void* const buffer = driver_->allocate(bytes);
    if (!buffer) {
      throw Error(
          fmt::format("{}: no {} bytes of shared memory to stage a call; see what else the "
                      "GPU's memory is used for",
                      name, bytes));
    }
    std::byte* const memory = driver_->contents(buffer);
    const std::lock_guard lock(mutex_);
    buffers_[memory] = buffer;
    return memory;
  }

  void free(std::byte* memory) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(memory);
    if (found == buffers_.end()) return;
    driver_->free(found->second);
    buffers_.erase(found);
  }

  MetalPlace place_of(const std::byte* memory) const {
    const std::lock_guard lock(mutex_);
    const auto [first, buffer] = *std::prev(buffers_.upper_bound(memory));
    return {buffer, static_cast<std::size_t>(memory - first)};
  }

 private:
  const std::shared_ptr<Driver> driver_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, void*> buffers_;  // guarded by mutex_
};

/// The host gives each copy to the GPU when it may begin: a GPU that waited for the host would keep
/// others waiting, and macOS ends what waits for seconds.
class BlitPassage final : public Passage {
 public:
  BlitPassage(std::shared_ptr<Driver> driver, std::shared_ptr<Pinned> pinned)
      : driver_(std::move(driver)), pinned_(std::move(pinned)) {}

  void begin(const Trip& trip) override {
    trip_ = trip;
    released_ = false;
    way_in_ = way_out_ = nullptr;
    if (trip.input_bytes == 0) return;
    way_in_ = copy({place_of(trip.from, trip.from_allocation), pinned_->place_of(trip.staged_input),
                    trip.input_bytes});
  }
  bool arrived() override { return over(way_in_); }
  void release(bool failed) override {
    released_ = true;
    if (failed || trip_.output_bytes == 0) return;
    way_out_ = copy({pinned_->place_of(trip_.staged_output),
                     place_of(trip_.to, trip_.to_allocation), trip_.output_bytes});
  }
  bool ended() override { return released_ && over(way_in_) && over(way_out_); }
  bool leads() const override { return false; }
  void lead(void* /*stream*/) override {}

 private:
  MetalPlace place_of(const void* data, void* buffer) const {
    return {buffer, reinterpret_cast<std::uintptr_t>(data) - driver_->address(buffer)};
  }
  std::shared_ptr<Fence> copy(const MetalCopy& one) { return driver_->copy({&one, 1}); }
  static bool over(std::shared_ptr<Fence>& copies) {
    if (copies && copies->passed()) copies.reset();
    return !copies;
  }

  const std::shared_ptr<Driver> driver_;
  const std::shared_ptr<Pinned> pinned_;
  Trip trip_{};
  bool released_ = false;
  std::shared_ptr<Fence> way_in_;
  std::shared_ptr<Fence> way_out_;
};

class Gpu final : public Accelerator {
 public:
  explicit Gpu(std::shared_ptr<Driver> driver)
      : driver_(std::move(driver)),
        pinned_(std::make_shared<Pinned>(driver_)),
        name_(fmt::format("{} ({})", name_of({DeviceKind::metal, 0}), driver_->name())) {}

  const std::string& name() const override { return name_; }
  std::unique_ptr<Queue> make_queue() override {
    throw Error(fmt::format("{} has no queues that wait for the host", name_));
  }
  std::unique_ptr<Passage> make_passage() override {
    return std::make_unique<BlitPassage>(driver_, pinned_);
  }
  std::byte* allocate_pinned(std::size_t bytes) override { return pinned_->allocate(bytes, name_); }
  void free_pinned(std::byte* memory) noexcept override { pinned_->free(memory); }

  std::string objection(const ConstBuffer& memory) const override {
    if (memory.count == 0) return {};
    if (!memory.allocation) {
      return fmt::format("is said to lie on {}, but names no MTLBuffer; see metal_buffer", name_);
    }
    return {};
  }

  bool is_capturing(void* /*stream*/) const override { return false; }

 private:
  const std::shared_ptr<Driver> driver_;
  const std::shared_ptr<Pinned> pinned_;
  const std::string name_;
};

}  // namespace

std::shared_ptr<Accelerator> open_gpu(int index) {
  if (index != 0) {
    throw InvalidArgument(
        fmt::format("{}: a Mac has one GPU, 0", name_of({DeviceKind::metal, index})));
  }
  return std::make_shared<Gpu>(driver());
}

}  // namespace mccl::device::metal
