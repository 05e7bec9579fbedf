// Functions for the checked arguments of a call, and the division of its data among the ranks.
#pragma once

#include <cstddef>
#include <limits>
#include <numeric>
#include <span>

#include "engine/calls/request.h"

namespace mccl {

using engine::Request;

/// The division of a call's data among the ranks: in equal parts, or by counts. All values are in
/// elements. Equal parts need no list of counts, so such calls allocate no memory.
class Shares {
 public:
  static Shares equal(int ranks, std::size_t each) {
    return Shares(static_cast<std::size_t>(ranks), each, {});
  }
  /// `counts` has one entry per rank and must outlive this object.
  static Shares of(std::span<const std::size_t> counts) { return Shares(counts.size(), 0, counts); }

  std::size_t at(int rank) const {
    return counts_.empty() ? each_ : counts_[static_cast<std::size_t>(rank)];
  }
  std::size_t before(int rank) const {
    const auto ranks = static_cast<std::size_t>(rank);
    return counts_.empty() ? ranks * each_ : sum(counts_.first(ranks));
  }
  std::size_t total() const { return counts_.empty() ? ranks_ * each_ : sum(counts_); }

  std::size_t ranks() const { return ranks_; }
  /// Elements of each rank's part; empty if all parts are equal.
  std::span<const std::size_t> counts() const { return counts_; }

  /// True if all parts together fit the address space. Otherwise total() and before() may overflow.
  bool fit(std::size_t element_bytes) const {
    std::size_t bytes = 0;
    if (counts_.empty()) {
      return !__builtin_mul_overflow(ranks_, each_, &bytes) &&
             !__builtin_mul_overflow(bytes, element_bytes, &bytes) && bytes <= kAddressSpace;
    }
    std::size_t left = kAddressSpace / element_bytes;
    for (const std::size_t count : counts_) {
      if (count > left) return false;
      left -= count;
    }
    return true;
  }

 private:
  Shares(std::size_t ranks, std::size_t each, std::span<const std::size_t> counts)
      : ranks_(ranks), each_(each), counts_(counts) {}
  static constexpr std::size_t kAddressSpace = std::numeric_limits<std::ptrdiff_t>::max();
  static std::size_t sum(std::span<const std::size_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }

  std::size_t ranks_;
  std::size_t each_;
  std::span<const std::size_t> counts_;
};

inline bool lies_on_device(const ConstBuffer& buffer) {
  return buffer.device.kind != DeviceKind::cpu;
}

/// True if the call's input or output lies on a device.
inline bool on_device(const Request& request) {
  return lies_on_device(request.in) || lies_on_device(request.out);
}

/// True if all input and output of this rank's call lie on a device.
inline bool only_on_device(const Request& request) {
  return on_device(request) && (lies_on_device(request.in) || request.in.count == 0) &&
         (lies_on_device(request.out) || request.out.count == 0);
}

/// The device of a request for which on_device() is true.
inline Device device_of(const Request& request) {
  return lies_on_device(request.in) ? request.in.device : request.out.device;
}

/// Returns how the data of a request with one part per rank are divided among `ranks` ranks. For an
/// all_to_all, this is the division of the input.
inline Shares shares_of(const Request& request, int ranks) {
  if (!request.counts.empty()) return Shares::of(request.counts);
  return Shares::equal(ranks, request.call.count / static_cast<std::size_t>(ranks));
}

}  // namespace mccl
