// Caller-owned memory that a device reads in place, instead of a copy in a slot.
//
// It is registered when a message begins and deregistered as soon as the device has read all of it,
// before the caller may modify it again (Link::borrowed). No registration outlives the call that
// lent the memory. So memory that is later freed, remapped or forked is never mistaken for the old
// memory. A cache keyed by address would need to observe every munmap to be equally safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

class Loans;

/// A registration that ends when the Loan is destroyed.
class Loan {
 public:
  Loan(Loans& owner, std::unique_ptr<Region> region, std::span<const std::byte> memory)
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
  std::unique_ptr<Region> region_;
  std::span<const std::byte> rest_;
  const std::size_t bytes_;
};

/// The loans of one device. Thread-safe. Must outlive its loans; the domain must outlive it.
class Loans {
 public:
  /// Smallest size that is lent, in bytes. A smaller payload is copied, because that is cheaper
  /// than registering its pages.
  static constexpr std::size_t kLeast = std::size_t{256} << 10;

  /// Allows at most `most` loans at a time; 0 if the device must not lend.
  Loans(Domain& domain, std::size_t most) : domain_(domain), most_(most) {}

  /// Returns null if the memory is smaller than kLeast, too much is lent already, or the device
  /// accepts no more. The caller must then copy the bytes.
  std::unique_ptr<Loan> take(std::span<const std::byte> memory);

  std::size_t in_use() const { return count_.load(std::memory_order_relaxed); }

 private:
  friend class Loan;
  void give_back(std::size_t bytes);

  /// Number of refusals after which the device is not asked again.
  static constexpr int kMostRefusals = 8;

  Domain& domain_;
  const std::size_t most_;
  std::atomic<std::size_t> count_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<int> refusals_{0};
};

}  // namespace mccl::transport::rdma
