// Measures one half of a row of the table: the call of one routine at one size, in place or out of
// place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "cli/bench/pattern.h"
#include "cli/bench/routine.h"
#include "mccl/group.h"

namespace mccl::cli::bench {

/// Options of a collective whose caller waits for it immediately.
inline const CallOptions kBlocking = {.timeout = {}, .caller_waits = true};
/// Options of a collective whose caller waits for it immediately, and which uses no codec.
inline const CallOptions kExact = {
    .timeout = {}, .caller_waits = true, .compression = Compression{Codec::none}};

/// Blocking collectives on a single value. All ranks get the same result: value_of_first() returns
/// rank 0's value, largest() the maximum, and sum() the sum. meet() is a barrier.
std::uint64_t value_of_first(Group& group, std::uint64_t value);
double largest(Group& group, double value);
std::uint64_t sum(Group& group, std::uint64_t value);
void meet(Group& group);

struct Timing {
  double time_us = 0;            ///< Mean time of a call on the slowest rank.
  double p50_us = 0;             ///< Median time of single calls, on rank 0.
  double p99_us = 0;             ///< 99th percentile of the times of single calls, on rank 0.
  std::uint64_t iterations = 0;  ///< Number of calls that time_us averages.
};

/// Times a collective call. Every rank must call this, and `call` must make this rank's call of the
/// collective. Rank 0 decides how many calls are made, from options.{seconds, iterations, warmup}
/// and its clock.
Timing measure(Group& group, const std::function<void()>& call, const Options& options);

/// Returns a percentile by the nearest-rank method: the smallest sample such that at least the
/// fraction `share` (0 to 1) of all samples is not larger. Returns 0 without samples. Reorders the
/// samples.
double percentile(std::span<double> samples, double share);

/// Owns page-aligned memory.
class Memory {
 public:
  /// Throws Error if the memory cannot be allocated.
  explicit Memory(std::size_t bytes);
  std::span<std::byte> bytes() const { return {start_.get(), size_}; }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> start_;
  std::size_t size_;
};

/// One call of a routine at one size, in place or out of place, with its buffers and test data.
class Trial {
 public:
  /// `a` and `b` hold at least shape.bytes each. `a`, `b` and `group` must outlive the Trial. If
  /// `rounded` is true, the sum may be rounded, so the data stay within the range of every codec.
  Trial(Group& group, Routine routine, const CallSize& shape, const Options& options, bool in_place,
        bool rounded, const Memory& a, const Memory& b);

  /// Fills the input with this rank's data, and the output with a value that a correct call
  /// overwrites.
  void fill() const;
  /// Makes the call and blocks until it has ended.
  void run(const CallOptions& options = kBlocking) const;
  /// Returns the number of wrong elements in this rank's output, after one fill() and one run().
  std::uint64_t wrong() const;
  /// Returns the largest error in this rank's output (see Measurement::error). Only for sums of
  /// floats.
  double error() const;

 private:
  void place(const Memory& a, const Memory& b, bool in_place);
  std::span<std::byte> part(std::span<std::byte> whole, int index) const;
  /// Returns the `source` with which message() returns the correct data of part `part` of the
  /// output. Not for reductions.
  std::uint64_t source_of(int part) const;
  /// Returns the index, in the result of the whole reduction, of the first element of this rank's
  /// output.
  std::size_t first_of_output() const;

  Group& group_;
  Routine routine_;
  CallSize shape_;
  DType dtype_;
  ReduceOp op_;
  int root_;
  Most most_;
  std::span<std::byte> input_;  ///< Memory that the call reads on this rank; may be empty.
  /// Memory that the call writes; the same as input_ if the call has only one buffer.
  std::span<std::byte> output_;
  ConstBuffer in_;  ///< Describes input_ in a call.
  Buffer out_;      ///< Describes output_ in a call.
};

}  // namespace mccl::cli::bench
