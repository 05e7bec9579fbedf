// A VerbsDevice is one open RDMA device of this process. All ranks of the process share it, because
// devices support few contexts. The device is closed when its last user releases it. A failed
// device also stays open for its users, while new users open another instance.
//
// A device supports few regions of registered memory, and registration is slow. So one region is
// divided into berths. A berth holds the slots (message buffers) of one link, and is reused after
// the link is destroyed.
//
// A Loan is memory of the caller that the device reads in place, without a copy to a slot. The
// memory is registered when a message begins. It is deregistered as soon as the device has read all
// of it, before the caller may modify it again (Link::borrowed). So a registration never covers
// memory that was freed, remapped or forked in the meantime. A cache of registrations, keyed by
// address, would have to observe every munmap to be equally safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

class SlotMemory;

/// The area of registered memory that holds the slots of one link. The destructor returns the area
/// to its SlotMemory.
class Berth {
 public:
  Berth() = default;
  Berth(SlotMemory& owner, std::size_t region, std::span<std::byte> memory, std::uint32_t key)
      : memory_(memory.data(), {&owner, region}), bytes_(memory.size()), key_(key) {}

  std::span<std::byte> memory() const { return {memory_.get(), bytes_}; }
  std::uint32_t key() const { return key_; }

 private:
  struct GiveBack {
    SlotMemory* owner;
    std::size_t region;
    void operator()(const std::byte* memory) const;
  };

  std::unique_ptr<std::byte, GiveBack> memory_;
  std::size_t bytes_ = 0;
  std::uint32_t key_ = 0;
};

/// The registered memory of one device, divided into berths (see Berth). Thread-safe, because the
/// ranks of a process share a device. Must outlive its berths; the context must outlive it.
class SlotMemory {
 public:
  /// Each berth has `berth_bytes` bytes. At most `most_regions` regions are registered.
  SlotMemory(VerbsContext& context, std::size_t berth_bytes, std::size_t most_regions);

  /// Returns a free berth. If no berth is free, registers another region first. Throws Error if a
  /// limit on registered memory is reached, and VerbsError if registration fails for another
  /// reason.
  Berth take();

  std::size_t berths_in_use() const;

 private:
  friend class Berth;
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const;
  };
  struct Slab {
    std::unique_ptr<std::byte, Unmap> memory;
    std::unique_ptr<MemoryRegion> region;  // Covers `memory`, so it is destroyed first.
    std::vector<std::size_t> free;         ///< Offsets of free berths, in bytes.
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

/// Memory of a caller, registered until the Loan is destroyed.
class Loan {
 public:
  Loan(Loans& owner, std::unique_ptr<MemoryRegion> region, std::span<const std::byte> memory)
      : owner_(owner), region_(std::move(region)), rest_(memory), bytes_(memory.size()) {}
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  std::uint32_t key() const { return region_->key(); }
  /// The bytes of the registered memory that are not sent yet. The next send must begin with the
  /// first of these bytes.
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

/// The loans (registered memory of callers) of one device. Thread-safe. Must outlive its loans; the
/// context must outlive it.
class Loans {
 public:
  /// Smallest size, in bytes, of memory that take() registers. Copying a smaller payload is cheaper
  /// than registering its pages.
  static constexpr std::size_t kLeast = std::size_t{256} << 10;

  /// `most`: maximum number of loans at a time; 0 disables loans.
  Loans(VerbsContext& context, std::size_t most) : context_(context), most_(most) {}

  /// Registers the memory with the device. Returns null if the memory is smaller than kLeast, a
  /// limit on the number or size of loans is reached, or registration fails. The caller must then
  /// copy the bytes.
  std::unique_ptr<Loan> take(std::span<const std::byte> memory);

  std::size_t in_use() const { return count_.load(std::memory_order_relaxed); }

 private:
  friend class Loan;
  void give_back(std::size_t bytes);

  /// Number of failed registrations after which take() always returns null.
  static constexpr int kMostRefusals = 8;

  VerbsContext& context_;
  const std::size_t most_;
  std::atomic<std::size_t> count_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<int> refusals_{0};
};

class VerbsDevice {
 public:
  /// Maximum number of memory regions that MCCL registers, even if the device supports more.
  static constexpr std::size_t kMostRegions = 24;
  /// Number of regions that are reserved for loans and not used for slots. No region is reserved if
  /// the device supports fewer than twice this number of regions, or if RegionLimits::lends is
  /// false.
  static constexpr std::size_t kMostLoans = 8;

  /// Returns this process's instance of the device. Opens the device if there is no instance, or if
  /// the instance has failed. Throws VerbsError if the driver cannot open it.
  static std::shared_ptr<VerbsDevice> open(const std::shared_ptr<Verbs>& verbs,
                                           const std::string& name);
  VerbsDevice(std::shared_ptr<Verbs> verbs, std::string name);
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  const std::string& name() const { return name_; }
  VerbsContext& context() { return *context_; }
  SlotMemory& slots() { return *slots_; }
  Loans& loans() { return *loans_; }
  const RegionLimits& limits() const { return limits_; }

  /// Marks a port as used: if the port goes down, the device counts as failed.
  void use_port(int port) { ports_.fetch_or(bit_of(port)); }
  /// True if the device can no longer be used; its driver is then not called any more.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// The reason why the device failed; empty if it has not failed.
  std::string trouble() const;
  /// Processes the events that the device has reported since the last call.
  void look();
  /// Returns the error that the device reported for a queue pair; empty if there is none. A device
  /// may report such an error only as an event, and complete no request of the pair with an error.
  std::string trouble_of_pair(std::uint32_t number) const;
  /// Discards errors reported for an earlier queue pair with this number. Must be called for each
  /// new queue pair.
  void forget_pair(std::uint32_t number);

  /// Called in the child of a fork: closes the child's copies of the context's descriptors, because
  /// the context belongs to the parent.
  void abandon() noexcept {
    if (!abandoned_.exchange(true)) context_->abandon();
  }

 private:
  static std::uint64_t bit_of(int port) { return std::uint64_t{1} << (port & 63); }
  void fail(const std::string& why);

  const std::shared_ptr<Verbs> verbs_;
  const std::string name_;
  std::unique_ptr<VerbsContext> context_;
  RegionLimits limits_;
  std::unique_ptr<SlotMemory> slots_;
  std::unique_ptr<Loans> loans_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<std::uint64_t> ports_{0};  ///< One bit for each port given to use_port().
  mutable std::mutex mutex_;
  std::string trouble_;                                // guarded by mutex_
  std::map<std::uint32_t, std::string> failed_pairs_;  // guarded by mutex_
  /// True once a queue pair has failed. While it is false, trouble_of_pair() does not take the
  /// lock.
  std::atomic<bool> any_pair_failed_{false};
};

}  // namespace mccl::transport::rdma
