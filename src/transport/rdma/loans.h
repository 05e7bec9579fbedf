// Memory of a caller that a device reads where it lies, instead of a copy in a slot.
//
// It is registered when a message begins and no longer when the device has read it all, which is
// before the caller may touch it again (Link::borrowed). Nothing that is registered outlives the
// call that lent it, so that memory which is freed, mapped anew or forked is never mistaken for
// what was there before: a cache by address would have to hear of every munmap to be as sure.
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

/// Registered while it lives.
class Loan {
 public:
  Loan(Loans& owner, std::unique_ptr<Region> region, std::span<const std::byte> memory)
      : owner_(owner), region_(std::move(region)), rest_(memory), bytes_(memory.size()) {}
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  std::uint32_t key() const { return region_->key(); }
  /// What was not sent yet. A caller goes on with that and nothing else.
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

/// Of a device. Thread-safe; outlives its loans, and the domain outlives it.
class Loans {
 public:
  /// Below this a copy is cheaper than to have the pages registered.
  static constexpr std::size_t kLeast = std::size_t{256} << 10;

  /// At most so many at a time; none where the device may not.
  Loans(Domain& domain, std::size_t most) : domain_(domain), most_(most) {}

  /// Null where the bytes are few, too many are lent already, or the device takes no more: then
  /// they are copied.
  std::unique_ptr<Loan> take(std::span<const std::byte> memory);

  std::size_t in_use() const { return count_.load(std::memory_order_relaxed); }

 private:
  friend class Loan;
  void give_back(std::size_t bytes);

  /// So often a device may refuse before it is asked no more.
  static constexpr int kMostRefusals = 8;

  Domain& domain_;
  const std::size_t most_;
  std::atomic<std::size_t> count_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<int> refusals_{0};
};

}  // namespace mccl::transport::rdma
