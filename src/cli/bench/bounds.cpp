#include "cli/bench/bounds.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "cli/bench/agree.h"
#include "cli/bench/timing.h"
#include "cli/bench/trial.h"

namespace mccl::cli::bench {
namespace {

constexpr std::size_t kBuffer = std::size_t{64} << 20;
/// Total size of all ranks' buffers, in bytes. With many ranks, each buffer is smaller than
/// kBuffer.
constexpr std::size_t kAllBuffers = std::size_t{1} << 30;
/// Size of the stage, in bytes. It fits easily into a core's second-level cache.
constexpr std::size_t kStage = std::size_t{256} << 10;
constexpr int kRepetitions = 5;

std::size_t buffer_bytes(int ranks) {
  const std::size_t share = kAllBuffers / static_cast<std::size_t>(ranks) / kStage * kStage;
  return std::clamp(share, 4 * kStage, kBuffer);
}

/// Returns the median rate of the slowest rank that takes part. All of them work at the same time.
double rate_gbs(Group& group, bool takes_part, std::size_t bytes,
                const std::function<void()>& work) {
  if (takes_part) work();
  std::vector<double> rates;
  for (int i = 0; i < kRepetitions; ++i) {
    meet(group);
    const Clock::time_point begin = Clock::now();
    if (takes_part) work();
    const double took = takes_part ? seconds_between(begin, Clock::now()) : 0;
    rates.push_back(static_cast<double>(bytes) / largest(group, took) / 1e9);
  }
  return percentile(rates, 0.5);
}

void pass(std::span<std::byte> buffer, std::span<std::byte> stage) {
  for (; !buffer.empty(); buffer = buffer.subspan(stage.size())) {
    std::memcpy(stage.data(), buffer.data(), stage.size());
    // Changes a byte, because the compiler might omit the copy back of equal bytes.
    *reinterpret_cast<volatile std::byte*>(stage.data()) = std::byte{1};
    std::memcpy(buffer.data(), stage.data(), stage.size());
  }
}

}  // namespace

Bounds measure_bounds(Group& group, bool one_host) {
  Bounds bounds;
  bounds.buffer_bytes = buffer_bytes(group.size());
  const Memory from(bounds.buffer_bytes);
  const Memory to(bounds.buffer_bytes);
  const Memory stage(kStage);
  std::memset(from.bytes().data(), 1, from.bytes().size());
  std::memset(to.bytes().data(), 2, to.bytes().size());
  const auto copy = [&] {
    std::memcpy(to.bytes().data(), from.bytes().data(), bounds.buffer_bytes);
  };
  bounds.copy_one_gbs = rate_gbs(group, group.rank() == 0, bounds.buffer_bytes, copy);
  bounds.copy_all_gbs = rate_gbs(group, true, bounds.buffer_bytes, copy);
  bounds.pass_all_gbs =
      rate_gbs(group, true, bounds.buffer_bytes, [&] { pass(from.bytes(), stage.bytes()); });
  if (one_host && group.size() > 1) bounds.loopback = measure_loopback(group);
  return bounds;
}

}  // namespace mccl::cli::bench
