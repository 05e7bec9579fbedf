// Memory that is registered with a device, which supports few regions and registers slowly.
//
// Berths hold the slots of links. One region has several berths, which are reused after their links
// are gone.
//
// Loans are memory of callers that the device reads in place, instead of a copy in a slot. It is
// registered when a message begins and deregistered as soon as the device has read all of it,
// before the caller may modify it again (Link::borrowed). No registration outlives the call that
// lent the memory. So memory that is later freed, remapped or forked is never mistaken for the old
// memory. A cache keyed by address would need to observe every munmap to be equally safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "transport/rdma/verbs/verbs.h"

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
/// ranks of a process share a device. Must outlive its berths; the context must outlive it.
class SlotMemory {
 public:
  /// Each berth has `berth_bytes` bytes. At most `most_regions` regions are registered.
  SlotMemory(VerbsContext& context, std::size_t berth_bytes, std::size_t most_regions);

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
    std::unique_ptr<MemoryRegion> region;  // Destroyed before `memory`.
    std::vector<std::size_t> free;         ///< Offsets of free berths.
    std::size_t used = 0;
  };

  void add_slab();
  void give_back(std::size_t region, const std::byte* memory);

  VerbsContext& context_;
  const std::size_t berth_bytes_;
  const std::size_t most_regions_;
  mutable std::mutex mutex_;
  std::vector<Slab> slabs_;  // guarded by mutex_
};

class Loans;

/// A registration that ends when the Loan is destroyed.
class Loan {
 public:
  Loan(Loans& owner, std::unique_ptr<MemoryRegion> region, std::span<const std::byte> memory)
      : owner_(owner), region_(std::move(region)), rest_(memory), bytes_(memory.size()) {}
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  std::uint32_t key() const { return region_->key(); }
  /// Bytes not sent yet. The caller must continue with exactly these.
  std::span<const std::byte> rest() const { return rest_; }
  bool goes_on_with(std::span<const std::byte> bytes) const {
    return !rest_.empty() && bytes.data() == rest_.data() && bytes.size() <= rest_.size();
  }
  void sent(std::size_t bytes) { rest_ = rest_.subspan(bytes); }

 private:
  Loans& owner_;
  std::unique_ptr<MemoryRegion> region_;
  std::span<const std::byte> rest_;
  const std::size_t bytes_;
};

/// The loans of one device. Thread-safe. Must outlive its loans; the context must outlive it.
class Loans {
 public:
  /// Smallest size that is lent, in bytes. A smaller payload is copied, because that is cheaper
  /// than registering its pages.
  static constexpr std::size_t kLeast = std::size_t{256} << 10;

  /// Allows at most `most` loans at a time; 0 if the device must not lend.
  Loans(VerbsContext& context, std::size_t most) : context_(context), most_(most) {}

  /// Returns null if the memory is smaller than kLeast, too much is lent already, or the device
  /// accepts no more. The caller must then copy the bytes.
  std::unique_ptr<Loan> take(std::span<const std::byte> memory);

  std::size_t in_use() const { return count_.load(std::memory_order_relaxed); }

 private:
  friend class Loan;
  void give_back(std::size_t bytes);

  /// Number of refusals after which the device is not asked again.
  static constexpr int kMostRefusals = 8;

  VerbsContext& context_;
  const std::size_t most_;
  std::atomic<std::size_t> count_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<int> refusals_{0};
};

}  // namespace mccl::transport::rdma
