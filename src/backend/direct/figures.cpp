#include "backend/direct/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "backend/staged/poll_backoff.h"
#include "base/clock.h"
#include "engine/calls/operation.h"
#include "mccl/error.h"

namespace mccl::direct {
namespace {

/// Returns the measured collective whose data movement is most like that of `call`.
Collective like(Collective call) {
  switch (call) {
    case Collective::reduce:
      return Collective::reduce_scatter;
    case Collective::gather:
      return Collective::all_gather;
    case Collective::scatter:
      return Collective::broadcast;
    default:
      return call;
  }
}

/// Returns the time of a call, interpolated linearly between the measured lengths. Outside the
/// range of these lengths, returns the time of the nearest length. Returns infinity if the path
/// does not support the call at some length.
float seconds_of(const Figures& figures, std::size_t call, std::size_t bytes) {
  const auto& row = figures.seconds[call];
  if (std::ranges::find(row, 0.0F) != row.end()) return std::numeric_limits<float>::infinity();
  if (bytes <= kMeasuredBytes.front()) return row.front();
  for (std::size_t i = 1; i < kMeasuredBytes.size(); ++i) {
    if (bytes > kMeasuredBytes[i]) continue;
    const double span = static_cast<double>(kMeasuredBytes[i] - kMeasuredBytes[i - 1]);
    const double at = static_cast<double>(bytes - kMeasuredBytes[i - 1]) / span;
    return static_cast<float>(row[i - 1] + at * (row[i] - row[i - 1]));
  }
  return row.back();
}

constexpr int kBatches = 3;
/// Number of consecutive calls per measurement, for each entry of kMeasuredBytes. Short calls are
/// repeated more often, so that the time to start the first call does not dominate.
constexpr std::array kCalls{10, 5, 2};
static_assert(kCalls.size() == kMeasuredBytes.size());

/// Returns the request of a call with `bytes` bytes in its longer buffer. The elements are 16-bit
/// floats, the most common type of sums on GPUs.
Request request_of(Collective call, std::size_t bytes, int ranks, void* in, void* out,
                   Device device) {
  constexpr DType kType = DType::bf16;
  const std::size_t whole = bytes / size_of(kType);
  const std::size_t part = whole / static_cast<std::size_t>(ranks);
  Request request;
  request.call.collective = call;
  request.call.dtype = kType;
  request.call.root = call == Collective::broadcast ? 0 : -1;
  request.call.count = whole;
  request.in = ConstBuffer(in, call == Collective::all_gather ? part : whole, kType, device);
  request.out = {out, call == Collective::reduce_scatter ? part : whole, kType, device};
  if (call == Collective::broadcast) request.out.data = in;
  request.in_place = call == Collective::broadcast;
  request.even = call != Collective::all_reduce && call != Collective::broadcast;
  // Rounds the counts down to a multiple of the number of ranks.
  if (request.even) {
    request.call.count = part * static_cast<std::size_t>(ranks);
    if (call != Collective::all_gather) request.in.count = request.call.count;
    if (call != Collective::reduce_scatter) request.out.count = request.call.count;
  }
  return request;
}

class Stopwatch {
 public:
  Stopwatch(Path& path, device::SerialQueue& queue, std::chrono::milliseconds patience)
      : path_(path), queue_(queue), patience_(patience) {}

  float time(const Request& request, int calls) {
    run(request, 1);
    std::array<double, kBatches> taken{};
    for (double& seconds : taken) {
      const Clock::time_point begin = Clock::now();
      run(request, calls);
      seconds = seconds_between(begin, Clock::now()) / calls;
    }
    std::ranges::sort(taken);
    return static_cast<float>(taken[kBatches / 2]);
  }

 private:
  /// The patience applies to each row of calls: on a GPU that many processes share, all rows
  /// together may take longer than a short timeout, although every rank takes part.
  void run(const Request& request, int calls) {
    const Clock::time_point deadline = engine::deadline_after(Clock::now(), patience_);
    device::Word last = 0;
    for (int i = 0; i < calls; ++i) {
      last = queue_.run_beside(nullptr, [&](void* stream) { path_.enqueue(request, stream); });
    }
    for (const staged::PollBackoff backoff; !queue_.ended(last); backoff.pause()) {
      if (const std::string reason = path_.failure(); !reason.empty()) throw PeerError(reason);
      if (Clock::now() < deadline) continue;
      path_.abort();
      throw TimeoutError(
          fmt::format("measurement of {} on {} timed out: a rank has not made the call",
                      name_of(request.call.collective), queue_.accelerator().name()));
    }
  }

  Path& path_;
  device::SerialQueue& queue_;
  const std::chrono::milliseconds patience_;
};

}  // namespace

void Figures::take_slower(const Figures& other) {
  for (std::size_t call = 0; call < seconds.size(); ++call) {
    for (std::size_t i = 0; i < seconds[call].size(); ++i) {
      seconds[call][i] = std::max(seconds[call][i], other.seconds[call][i]);
    }
  }
}

std::vector<int> fastest_first(std::span<const Figures> ways, const Request& request) {
  std::vector<int> order(ways.size());
  std::iota(order.begin(), order.end(), 0);
  const auto found = std::ranges::find(kMeasuredCalls, like(request.call.collective));
  if (found == kMeasuredCalls.end()) return order;
  const auto call = static_cast<std::size_t>(found - kMeasuredCalls.begin());
  const std::size_t bytes = request.call.count * size_of(request.call.dtype);
  std::vector<float> seconds;
  for (const Figures& figures : ways) seconds.push_back(seconds_of(figures, call, bytes));
  std::ranges::stable_sort(order, {}, [&](int way) { return seconds[static_cast<size_t>(way)]; });
  return order;
}

Scratch scratch_on(device::Accelerator& accelerator) {
  return {accelerator.make_memory(kMeasuredBytes.back()),
          accelerator.make_memory(kMeasuredBytes.back())};
}

Figures measure(Path& path, device::SerialQueue& queue, const Scratch& scratch, Device device,
                int ranks, std::chrono::milliseconds patience) {
  Stopwatch stopwatch(path, queue, patience);
  Figures figures;
  for (std::size_t call = 0; call < kMeasuredCalls.size(); ++call) {
    for (std::size_t i = 0; i < kMeasuredBytes.size(); ++i) {
      const Request request = request_of(kMeasuredCalls[call], kMeasuredBytes[i], ranks,
                                         scratch.in.get(), scratch.out.get(), device);
      if (!path.takes(request)) continue;
      // The minimum is a nanosecond, because 0 means that the path does not support the call.
      figures.seconds[call][i] = std::max(1e-9F, stopwatch.time(request, kCalls[i]));
    }
  }
  return figures;
}

}  // namespace mccl::direct
