#include "backend/direct/figures.h"

#include <algorithm>
#include <limits>
#include <numeric>

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

/// Returns the time of a call, interpolated linearly between the measured lengths. Outside their
/// range, returns the nearest figure.
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

}  // namespace mccl::direct
