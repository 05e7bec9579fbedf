#include "base/histogram.h"

#include <algorithm>
#include <cmath>

namespace mccl {

namespace {

constexpr double kLongest = 1e9;

}  // namespace

std::size_t Histogram::bin_of(double seconds) {
  if (seconds <= kSmallest) return 0;
  const double bin = std::log2(seconds / kSmallest) * kBinsPerDoubling;
  return std::min(static_cast<std::size_t>(bin), kBins - 1);
}

void Histogram::add(double seconds, std::uint64_t times) {
  seconds = seconds > 0 ? std::min(seconds, kLongest) : 0;  // NaN compares false
  least_ = count_ == 0 ? seconds : std::min(least_, seconds);
  most_ = std::max(most_, seconds);
  bins_[bin_of(seconds)] += times;
  count_ += times;
}

double Histogram::quantile(double share) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(count_));
  const auto rank = std::max<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1);
  std::uint64_t below = 0;
  std::size_t bin = 0;
  while (bin < kBins - 1 && below + bins_[bin] < rank) below += bins_[bin++];
  const double middle = kSmallest * std::exp2((static_cast<double>(bin) + 0.5) / kBinsPerDoubling);
  return std::clamp(middle, least_, most_);
}

}  // namespace mccl
