// The checked arguments of a call. A request is built once, when the arguments are checked. All
// code that carries out the call reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/calls/call.h"
#include "mccl/buffer.h"

namespace mccl::engine {

/// Gives a running call its input as it arrives, and fetches the call's output as it becomes final.
/// Both happen in the order of the addresses.
class Conveyor {
 public:
  virtual ~Conveyor() = default;

  /// Number of bytes at the beginning of the input that have arrived; never decreases. Throws Error
  /// if no more bytes will arrive.
  virtual std::size_t arrived() const = 0;
  /// Size in bytes of the pieces in which the output is fetched. The call reports progress whenever
  /// another piece is complete.
  virtual std::size_t piece_of_output() const = 0;
  /// Reports that the first `bytes` bytes of the output are final.
  virtual void deliver(std::size_t bytes) = 0;
};

/// A request refers to data and counts in the caller's memory. Code that keeps a request beyond the
/// call must copy the counts.
struct Request {
  Call call = {};
  ConstBuffer in = {};
  Buffer out = {};
  /// True if input and output are the same memory, or one of them is this rank's part of the other.
  bool in_place = false;
  /// True if the data consist of one equal part per rank, `call.count` elements in total. `counts`
  /// is then empty.
  bool even = false;
  double factor = 1.0;  ///< premul_sum: number by which the input is multiplied.
  /// Number of elements in each rank's part, if the parts may differ. For an all_to_all with
  /// counts: number of elements that this rank sends to each rank; `recv_counts` then holds the
  /// numbers of elements that it receives from each rank.
  std::span<const std::size_t> counts = {};
  std::span<const std::size_t> recv_counts = {};
  /// Set if parts of the input arrive, and parts of the output are fetched, while the call runs.
  /// Null if the whole memory is available from the start.
  Conveyor* conveyor = nullptr;
};

/// Copies of a request's counts, for code that keeps the request beyond the call.
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

struct Traffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  double network_s = 0;
  /// False if the caller does not want `network_s`, because reading the clock costs more than the
  /// transfer.
  bool timed = true;
  /// True if a carrier carried out the call. All of the call's time then counts as `network_s`.
  bool carried = false;
};

}  // namespace mccl::engine
