// The checked arguments of a call. A request is built once, when the arguments are checked, and all
// parts that carry out the call read it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/calls/call.h"
#include "engine/calls/conveyor.h"
#include "mccl/buffer.h"

namespace mccl::engine {

/// Refers to the caller's memory, including the counts. Code that keeps a request beyond the call
/// must copy the counts.
struct Request {
  Call call;
  ConstBuffer in;
  Buffer out;
  /// True if input and output are the same memory, or one of them is the rank's own slot of the
  /// other.
  bool in_place = false;
  /// True if the data consist of one equal part per rank, `call.count` elements in total. `counts`
  /// is then empty.
  bool even = false;
  double factor = 1.0;  ///< premul_sum: factor of the input.
  /// Elements of each rank's part, if the parts may differ. For an all_to_all with counts: elements
  /// that this rank sends to each rank; `recv_counts` then holds those that it receives.
  std::span<const std::size_t> counts = {};
  std::span<const std::size_t> recv_counts = {};
  /// Set if parts of the input arrive, and parts of the output are fetched, while the call runs.
  /// Null if the whole memory is available from the start.
  Conveyor* conveyor = nullptr;
};

/// Keeps the counts of a request that must outlive the caller's memory.
class KeptCounts {
 public:
  /// Copies the counts and makes `request` refer to the copies.
  explicit KeptCounts(Request& request)
      : counts_(request.counts.begin(), request.counts.end()),
        recv_counts_(request.recv_counts.begin(), request.recv_counts.end()) {
    request.counts = counts_;
    request.recv_counts = recv_counts_;
  }
  KeptCounts(const KeptCounts&) = delete;
  KeptCounts& operator=(const KeptCounts&) = delete;

 private:
  const std::vector<std::size_t> counts_;
  const std::vector<std::size_t> recv_counts_;
};

}  // namespace mccl::engine
