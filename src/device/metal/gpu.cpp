#include "device/metal/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "device/metal/driver.h"
#include "mccl/error.h"

namespace mccl::device::metal {
namespace {

MetalPlace operator+(MetalPlace place, std::size_t bytes) {
  return {place.buffer, place.offset + bytes};
}

/// Buffers in shared storage, found by their host address.
class Pinned {
 public:
  explicit Pinned(std::shared_ptr<MetalDriver> driver) : driver_(std::move(driver)) {}

  std::byte* allocate(std::size_t bytes, const std::string& name) {
    void* const buffer = driver_->allocate(bytes);
    if (!buffer) {
      throw Error(
          fmt::format("{}: cannot allocate {} bytes of shared memory to stage a call; check what "
                      "else uses the GPU's memory",
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
  const std::shared_ptr<MetalDriver> driver_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, void*> buffers_;  // guarded by mutex_
};

/// A bounce in which the host submits each copy only when the copy may begin. A GPU that waited for
/// the host would block other programs, and macOS ends GPU work that waits for seconds.
class BlitBounce final : public HostBounce {
 public:
  BlitBounce(std::shared_ptr<MetalDriver> driver, std::shared_ptr<Pinned> pinned)
      : driver_(std::move(driver)), pinned_(std::move(pinned)) {}

  void begin(const Trip& trip) override {
    trip_ = trip;
    arrived_ = released_ = 0;
    finished_ = false;
    way_in_.clear();
    way_out_.clear();
    const std::size_t piece =
        trip.piece == 0 ? std::max<std::size_t>(trip.input_bytes, 1) : trip.piece;
    for (std::size_t at = 0; at < trip.input_bytes; at += piece) {
      const std::size_t bytes = std::min(piece, trip.input_bytes - at);
      way_in_.push_back({at + bytes, copy(place_of(trip.from, trip.from_allocation) + at,
                                          pinned_->place_of(trip.staged_input) + at, bytes)});
    }
  }
  std::size_t arrived() override {
    while (!way_in_.empty() && way_in_.front().fence->passed()) {
      arrived_ = way_in_.front().end;
      way_in_.pop_front();
    }
    return arrived_;
  }
  void release(std::size_t bytes) override {
    if (bytes <= released_) return;
    way_out_.push_back(
        {bytes, copy(pinned_->place_of(trip_.staged_output) + released_,
                     place_of(trip_.to, trip_.to_allocation) + released_, bytes - released_)});
    released_ = bytes;
  }
  void finish(bool failed) override {
    if (!failed) release(trip_.output_bytes);
    finished_ = true;
  }
  bool ended() override {
    while (!way_out_.empty() && way_out_.front().fence->passed()) way_out_.pop_front();
    return finished_ && arrived() == trip_.input_bytes && way_out_.empty();
  }
  bool leads() const override { return false; }
  void lead(void* /*stream*/) override {}

 private:
  /// A submitted copy. `end` is the offset in the data at which the copy ends.
  struct Leg {
    std::size_t end;
    std::shared_ptr<Fence> fence;
  };

  MetalPlace place_of(const void* data, void* buffer) const {
    return {buffer, reinterpret_cast<std::uintptr_t>(data) - driver_->address(buffer)};
  }
  std::shared_ptr<Fence> copy(MetalPlace from, MetalPlace to, std::size_t bytes) {
    const MetalCopy one{from, to, bytes};
    return driver_->copy({&one, 1});
  }

  const std::shared_ptr<MetalDriver> driver_;
  const std::shared_ptr<Pinned> pinned_;
  Trip trip_{};
  std::size_t arrived_ = 0;
  std::size_t released_ = 0;
  bool finished_ = false;
  std::deque<Leg> way_in_;
  std::deque<Leg> way_out_;
};

class MetalGpu final : public Accelerator {
 public:
  explicit MetalGpu(std::shared_ptr<MetalDriver> driver)
      : driver_(std::move(driver)),
        pinned_(std::make_shared<Pinned>(driver_)),
        name_(fmt::format("{} ({})", name_of({DeviceKind::metal, 0}), driver_->name())) {}

  const std::string& name() const override { return name_; }
  std::string bus() const override { return "metal"; }
  std::size_t least_piece() const override { return driver_->least_piece(); }
  void finish() override {}  // make_memory() always throws, so no memory can be in use
  std::shared_ptr<void> make_memory(std::size_t /*bytes*/) override {
    throw Error(fmt::format("{}: cannot allocate device memory on Metal; use an MTLBuffer", name_));
  }
  std::unique_ptr<Queue> make_queue() override {
    throw Error(fmt::format(
        "{}: cannot make a queue whose operations wait for the host; only CUDA devices have such "
        "queues",
        name_));
  }
  std::unique_ptr<HostBounce> make_bounce() override {
    return std::make_unique<BlitBounce>(driver_, pinned_);
  }
  std::byte* allocate_pinned(std::size_t bytes) override { return pinned_->allocate(bytes, name_); }
  void free_pinned(std::byte* memory) noexcept override { pinned_->free(memory); }

  std::string objection(const ConstBuffer& memory) const override {
    if (memory.count == 0) return {};
    if (!memory.allocation) {
      return fmt::format("is declared to be on {}, but names no MTLBuffer; see metal_buffer",
                         name_);
    }
    return {};
  }

  bool is_capturing(void* /*stream*/) const override { return false; }

 private:
  const std::shared_ptr<MetalDriver> driver_;
  const std::shared_ptr<Pinned> pinned_;
  const std::string name_;
};

}  // namespace

void* address_of(const ConstBuffer& shared) {
  const auto gpu = driver();
  const auto offset = static_cast<const std::byte*>(shared.data) - gpu->contents(shared.allocation);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): Metal returns a buffer's address as an integer
  return reinterpret_cast<void*>(gpu->address(shared.allocation) +
                                 static_cast<std::uintptr_t>(offset));
}

std::shared_ptr<Accelerator> open_gpu(int index) {
  if (index != 0) {
    throw InvalidArgument(fmt::format("{}: a Mac has only the GPU with index 0",
                                      name_of({DeviceKind::metal, index})));
  }
  try {
    return std::make_shared<MetalGpu>(driver());
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}; copy the data to the host",
                                      name_of({DeviceKind::metal, index}), error.what()));
  }
}

}  // namespace mccl::device::metal
