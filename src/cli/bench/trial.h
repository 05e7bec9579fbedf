// Measures one half of a row of the table: the call of one routine at one size, in place or out of
// place, and how much of the call is hidden behind a computation that runs at the same time.
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

/// Blocking collectives on a single value, with the same result on all ranks. meet() is a barrier.
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

/// Times a collective call, which `call` makes. Every rank must call this. Rank 0 decides how many
/// calls are made, from options.{seconds, iterations, warmup} and its clock.
Timing measure(Group& group, const std::function<void()>& call, const Options& options);

/// Returns a percentile by the nearest-rank method: the smallest sample such that at least the
/// fraction `share` of all samples is not larger; 0 without samples. Reorders the samples.
double percentile(std::span<double> samples, double share);

/// Owns page-aligned memory.
class Memory {
 public:
  /// Throws Error if the memory cannot be allocated.
  explicit Memory(std::size_t bytes);
  Memory(std::shared_ptr<std::byte> start, std::size_t bytes)
      : start_(std::move(start)), size_(bytes) {}
  std::span<std::byte> bytes() const { return {start_.get(), size_}; }

 private:
  std::shared_ptr<std::byte> start_;
  std::size_t size_;
};

/// One call of a routine at one size, in place or out of place, with its buffers and test data.
class Trial {
 public:
  /// `a` and `b` hold at least shape.bytes each, and must outlive the Trial, as must `group`. If
  /// the sum may be `rounded`, the data stay within the range of every codec.
  Trial(Group& group, Routine routine, const CallSize& shape, const Options& options, bool in_place,
        bool rounded, const Memory& a, const Memory& b);

  /// Fills the input, and overwrites the output with a value that a correct call replaces.
  void fill() const;
  void run(const CallOptions& options = kBlocking) const;
  Work start(const CallOptions& options) const;
  /// Returns the number of wrong elements in this rank's output, after one fill() and one run().
  std::uint64_t wrong() const;
  /// See Measurement::error. Only for sums of floats.
  double error() const;

 private:
  void place(const Memory& a, const Memory& b, bool in_place);
  /// The rank `distance` places after this one, or before it if `distance` is negative, in a ring.
  /// `distance` is at most the number of ranks. Needs no division, whose time would count as the
  /// call's.
  int neighbour(int distance) const;
  std::span<std::byte> part(std::span<std::byte> whole, int index) const;
  /// The `source` of the message() that part `part` of the output must hold. Not for reductions.
  std::uint64_t source_of(int part) const;
  /// Index of this rank's first output element in the result of the whole reduction.
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
  ConstBuffer in_;  ///< input_ and output_, as a call gets them.
  Buffer out_;
};

/// Times in microseconds, means on the slowest rank.
struct Overlap {
  double call_us = 0;     ///< The call alone.
  double compute_us = 0;  ///< A computation of about the same length, alone.
  double both_us = 0;  ///< The call is started, then the computation runs, then the caller waits.

  /// Share of the shorter of the two that costs no time: 1 if both take as long as the longer one,
  /// 0 if they take as long as one after the other, below 0 if they take longer.
  double hidden() const;
};

/// Measures a trial whose call takes `call_us` alone. Every rank must call this.
Overlap measure_overlap(Group& group, const Trial& trial, double call_us, const Options& options);

}  // namespace mccl::cli::bench
