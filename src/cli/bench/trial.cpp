#include "cli/bench/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "base/clock.h"
#include "base/machine.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

constexpr int kRubbish = 0xa5;
constexpr std::uint32_t kTag = 0;

constexpr std::uint64_t kFewest = 5;
constexpr std::uint64_t kMost = 1'000'000;
/// Shorter calls, in seconds, are also timed in a batch, because reading the clock takes time.
constexpr double kShortCall = 20e-6;
/// The warm-up ends when a batch takes this share of Options::seconds.
constexpr double kWarmupShare = 0.1;

/// Numbers of calls to time: first one by one, and then together in a batch.
struct CallCounts {
  std::uint64_t singles = 0;
  /// Number of calls timed together. If 0, the mean is computed from the calls timed one by one.
  std::uint64_t batch = 0;
};

double time_batch(const std::function<void()>& call, std::uint64_t count) {
  const Clock::time_point begin = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) call();
  return seconds_between(begin, Clock::now());
}

/// Rank 0 decides for all ranks. Warms up with batches of doubling size, until one takes
/// kWarmupShare of Options::seconds or has kMost calls, or with one batch if Options::iterations is
/// set.
CallCounts decide_counts(Group& group, const std::function<void()>& call, const Options& options) {
  double each = 0;
  std::uint64_t count = options.warmup;
  if (options.iterations == 0) count = std::max<std::uint64_t>(count, 1);
  while (count > 0) {
    meet(group);
    const double took = time_batch(call, count);
    each = took / static_cast<double>(count);
    const bool enough =
        options.iterations > 0 || took >= kWarmupShare * options.seconds || count >= kMost;
    count = value_of_first(group, enough ? 0 : 2 * count);
  }
  // Without a warm-up, the time of a call is unknown.
  const bool is_short = (options.iterations == 0 || options.warmup > 0) && each < kShortCall;
  std::uint64_t calls = options.iterations;
  if (calls == 0) {
    const double seconds = is_short ? options.seconds / 2 : options.seconds;
    const double fitting = std::min(seconds / std::max(each, 1e-9), static_cast<double>(kMost));
    calls = std::max(kFewest, static_cast<std::uint64_t>(fitting));
  }
  return {value_of_first(group, calls), value_of_first(group, is_short ? calls : 0)};
}

/// Not blocking: the engine's threads advance the call while the caller computes.
const CallOptions kInBackground = {};

/// Arithmetic on registers, whose speed does not depend on memory or on other processes' caches.
/// Each step needs the result of the one before, so that a compiler cannot shorten the loop.
void compute(std::uint64_t steps) {
  volatile double result = 1;
  double value = result;
  for (std::uint64_t i = 0; i < steps; ++i) value = value * 0.999999 + 1e-6;
  result = value;
}

/// Returns the time of a step, in microseconds: the smallest of several attempts, because other
/// processes may take the core for a while.
double step_us() {
  constexpr std::uint64_t kSteps = 20'000;
  constexpr int kAttempts = 20;
  double least = std::numeric_limits<double>::max();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Clock::time_point begin = Clock::now();
    compute(kSteps);
    least = std::min(least, seconds_between(begin, Clock::now()));
  }
  return least * 1e6 / kSteps;
}

}  // namespace

Memory::Memory(std::size_t bytes)
    : start_(static_cast<std::byte*>(std::aligned_alloc(
                 page_bytes(), std::max<std::size_t>(1, (bytes + page_bytes() - 1) / page_bytes()) *
                                   page_bytes())),
             std::free),
      size_(bytes) {
  if (!start_)
    throw Error(fmt::format("no memory for a buffer of {} bytes; use smaller sizes", bytes));
}

Trial::Trial(Group& group, Routine routine, const CallSize& shape, const Options& options,
             bool in_place, bool rounded, const Memory& a, const Memory& b)
    : group_(group),
      routine_(routine),
      shape_(shape),
      dtype_(options.dtype),
      op_(options.op),
      root_(options.root),
      most_(rounded ? kMostRounded : kNoLimit) {
  place(a, b, in_place);
  in_ = {input_.data(), input_.size() / size_of(dtype_), dtype_};
  out_ = {output_.data(), output_.size() / size_of(dtype_), dtype_, {}};
}

std::span<std::byte> Trial::part(std::span<std::byte> whole, int index) const {
  const std::size_t bytes = shape_.part * size_of(dtype_);
  return whole.subspan(static_cast<std::size_t>(index) * bytes, bytes);
}

void Trial::place(const Memory& a, const Memory& b, bool in_place) {
  const std::span<std::byte> one = a.bytes().first(shape_.bytes);
  const std::span<std::byte> two = b.bytes().first(shape_.bytes);
  const int rank = group_.rank();
  const bool is_root = rank == root_;
  switch (routine_) {
    case Routine::all_reduce:
    case Routine::all_to_all:
    case kSendrecv:
      input_ = one;
      output_ = in_place ? one : two;
      break;
    case Routine::broadcast:
      input_ = is_root ? one : std::span<std::byte>();
      output_ = one;
      break;
    case Routine::reduce:
      input_ = one;
      if (is_root) output_ = in_place ? one : two;
      break;
    case Routine::all_gather:
      output_ = two;
      input_ = in_place ? part(two, rank) : part(one, 0);
      break;
    case Routine::gather:
      if (is_root) output_ = two;
      input_ = in_place && is_root ? part(two, rank) : part(one, 0);
      break;
    case Routine::reduce_scatter:
      input_ = one;
      output_ = in_place ? part(one, rank) : part(two, 0);
      break;
    case Routine::scatter:
      if (is_root) input_ = one;
      output_ = in_place && is_root ? part(one, rank) : part(two, 0);
      break;
    case Routine::barrier:
    case Routine::recv:
      break;
  }
}

int Trial::neighbour(int distance) const {
  const int rank = group_.rank() + distance;
  if (rank < 0) return rank + group_.size();
  return rank < group_.size() ? rank : rank - group_.size();
}

Work Trial::start(const CallOptions& options) const {
  switch (routine_) {
    case Routine::all_reduce:
      return group_.all_reduce(in_, out_, op_, options);
    case Routine::all_gather:
      return group_.all_gather(in_, out_, options);
    case Routine::reduce_scatter:
      return group_.reduce_scatter(in_, out_, op_, options);
    case Routine::all_to_all:
      return group_.all_to_all(in_, out_, options);
    case Routine::broadcast:
      return group_.broadcast(out_, root_, options);
    case Routine::reduce:
      return group_.reduce(in_, out_, op_, root_, options);
    case Routine::gather:
      return group_.gather(in_, out_, root_, options);
    case Routine::scatter:
      return group_.scatter(in_, out_, root_, options);
    case Routine::barrier:
      return group_.barrier(options);
    case kSendrecv:
      return Work::all_of({group_.send(in_, neighbour(1), kTag, options),
                           group_.recv(out_, neighbour(-1), kTag, options)});
    case Routine::recv:
      break;
  }
  return {};
}

void Trial::run(const CallOptions& options) const {
  if (routine_ != kSendrecv) return start(options).wait();
  // The caller waits for the receive first, without an object for both messages.
  const Work sent = group_.send(in_, neighbour(1), kTag, options);
  group_.recv(out_, neighbour(-1), kTag, options).wait();
  sent.wait();
}

void Trial::fill() const {
  if (!output_.empty()) std::memset(output_.data(), kRubbish, output_.size());
  if (input_.empty()) return;
  const int ranks = group_.size();
  const auto rank = static_cast<std::uint64_t>(group_.rank());
  if (info_of(routine_).reduces) {
    contribution(dtype_, op_.kind, group_.rank(), ranks, most_).fill(input_);
  } else if (routine_ == Routine::all_to_all || routine_ == Routine::scatter) {
    const std::uint64_t first =
        routine_ == Routine::scatter ? 0 : rank * static_cast<std::uint64_t>(ranks);
    for (int j = 0; j < ranks; ++j)
      message(dtype_, first + static_cast<std::uint64_t>(j)).fill(part(input_, j));
  } else {
    message(dtype_, rank).fill(input_);
  }
}

std::size_t Trial::first_of_output() const {
  const bool scatters = routine_ == Routine::reduce_scatter;
  return scatters ? static_cast<std::size_t>(group_.rank()) * shape_.part : 0;
}

double Trial::error() const {
  return reduction(dtype_, op_.kind, group_.size(), most_)
      .largest_error(dtype_, output_, first_of_output());
}

std::uint64_t Trial::source_of(int part) const {
  const int ranks = group_.size();
  const int rank = group_.rank();
  switch (routine_) {
    case Routine::all_to_all:
      return static_cast<std::uint64_t>(part) * static_cast<std::uint64_t>(ranks) +
             static_cast<std::uint64_t>(rank);
    case Routine::scatter:
      return static_cast<std::uint64_t>(rank);
    case Routine::broadcast:
      return static_cast<std::uint64_t>(root_);
    case kSendrecv:
      return static_cast<std::uint64_t>(neighbour(-1));
    default:
      return static_cast<std::uint64_t>(part);
  }
}

std::uint64_t Trial::wrong() const {
  if (output_.empty()) return 0;
  if (info_of(routine_).reduces)
    return reduction(dtype_, op_.kind, group_.size()).count_wrong(output_, first_of_output());
  const std::size_t bytes = shape_.part * size_of(dtype_);
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < output_.size(); at += bytes) {
    const int part = static_cast<int>(at / bytes);
    wrong += message(dtype_, source_of(part)).count_wrong(output_.subspan(at, bytes));
  }
  return wrong;
}

std::uint64_t value_of_first(Group& group, std::uint64_t value) {
  group.broadcast({&value, 1, DType::u64, {}}, 0, kBlocking).wait();
  return value;
}

double largest(Group& group, double value) {
  const Buffer buffer{&value, 1, DType::f64, {}};
  group.all_reduce(buffer, buffer, ReduceKind::max, kBlocking).wait();
  return value;
}

std::uint64_t sum(Group& group, std::uint64_t value) {
  const Buffer buffer{&value, 1, DType::u64, {}};
  group.all_reduce(buffer, buffer, ReduceKind::sum, kBlocking).wait();
  return value;
}

void meet(Group& group) { group.barrier(kBlocking).wait(); }

double percentile(std::span<double> samples, double share) {
  if (samples.empty()) return 0;
  const auto n = static_cast<double>(samples.size());
  const double rank = std::clamp(std::ceil(share * n), 1.0, n);
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(rank) - 1;
  std::ranges::nth_element(samples, at);
  return *at;
}

Timing measure(Group& group, const std::function<void()>& call, const Options& options) {
  const CallCounts counts = decide_counts(group, call, options);
  std::vector<double> samples(counts.singles);
  meet(group);
  const Clock::time_point begin = Clock::now();
  Clock::time_point before = begin;
  for (double& sample : samples) {
    call();
    const Clock::time_point after = Clock::now();
    sample = seconds_between(before, after);
    before = after;
  }
  double elapsed = seconds_between(begin, before);
  if (counts.batch > 0) {
    meet(group);
    elapsed = time_batch(call, counts.batch);
  }
  const std::uint64_t calls = counts.batch > 0 ? counts.batch : counts.singles;
  return {largest(group, elapsed) / static_cast<double>(calls) * 1e6,
          percentile(samples, 0.50) * 1e6, percentile(samples, 0.99) * 1e6, calls};
}

double Overlap::hidden() const {
  const double shorter = std::min(call_us, compute_us);
  return shorter > 0 ? (call_us + compute_us - both_us) / shorter : 0;
}

Overlap measure_overlap(Group& group, const Trial& trial, double call_us, const Options& options) {
  const auto steps = static_cast<std::uint64_t>(call_us / step_us());
  const auto time_of = [&](const std::function<void()>& what) {
    return measure(group, what, options).time_us;
  };
  return {.call_us = call_us,
          .compute_us = time_of([&] { compute(steps); }),
          .both_us = time_of([&] {
            const Work work = trial.start(kInBackground);
            compute(steps);
            work.wait();
          })};
}

}  // namespace mccl::cli::bench
