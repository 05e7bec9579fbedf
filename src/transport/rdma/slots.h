// Registered memory for links. A device supports few regions, and registration is slow. So one
// region holds the slots of several links, and it is reused after they are gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

class SlotMemory;

/// The area of registered memory that holds the slots of one link. Returned to its SlotMemory on
/// destruction.
class Berth {
 public:
  Berth() = default;
  Berth(SlotMemory& owner, std::size_t region, std::span<std::byte> memory, std::uint32_t key)
      : owner_(&owner), region_(region), memory_(memory), key_(key) {}
  Berth(Berth&& other) noexcept { swap(other); }
  Berth& operator=(Berth&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Berth();

  std::span<std::byte> memory() const { return memory_; }
  std::uint32_t key() const { return key_; }

 private:
  void swap(Berth& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(region_, other.region_);
    std::swap(memory_, other.memory_);
    std::swap(key_, other.key_);
  }

  SlotMemory* owner_ = nullptr;
  std::size_t region_ = 0;
  std::span<std::byte> memory_;
  std::uint32_t key_ = 0;
};

/// The registered memory of one device, divided into berths (see Berth). Thread-safe, because the
/// ranks of a process share a device. Must outlive its berths; the domain must outlive it.
class SlotMemory {
 public:
  /// Each berth has `berth_bytes` bytes. At most `most_regions` regions are registered.
  SlotMemory(Domain& domain, std::size_t berth_bytes, std::size_t most_regions);

  /// Throws VerbsError, or Error with advice, if the device accepts no more memory.
  Berth take();

  std::size_t regions() const;
  std::size_t berths_in_use() const;

 private:
  friend class Berth;
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const;
  };
  struct Slab {
    std::unique_ptr<std::byte, Unmap> memory;
    std::unique_ptr<Region> region;  // Destroyed before `memory`.
    std::vector<std::size_t> free;   ///< Offsets of free berths.
    std::size_t used = 0;
  };

  void add_slab();
  void give_back(std::size_t region, const std::byte* memory);

  Domain& domain_;
  const std::size_t berth_bytes_;
  const std::size_t most_regions_;
  mutable std::mutex mutex_;
  std::vector<Slab> slabs_;  // guarded by mutex_
};

}  // namespace mccl::transport::rdma
