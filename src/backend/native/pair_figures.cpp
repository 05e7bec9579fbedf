#include "backend/native/pair_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "backend/native/group.h"

namespace mccl::native {
namespace {

/// Minimum and maximum size in bytes of the messages that measure the rate. The smallest message is
/// so large that its time depends on the rate of a slow cable, not on the buffers along that cable.
/// Sizes grow until a message takes kLongEnough seconds, so that the rate of a fast cable is
/// measured as well.
constexpr std::size_t kFirst = std::size_t{256} << 10;
constexpr std::size_t kMost = std::size_t{16} << 20;
constexpr double kLongEnough = 0.02;
constexpr int kSmallTimes = 10;
/// A slow trial is repeated, because the cause may be the processor instead of the cable.
/// kLargeTimes limits the number of trials per size, and kLongestOfSize their total time in
/// seconds, because other ranks wait during the trials.
constexpr int kLargeTimes = 3;
constexpr double kLongestOfSize = 0.2;

/// The decision after a trial: stop, measure the next larger size, or repeat the trial.
enum class Next : unsigned char { done, larger, again };

/// Sends the first rank's decision to the second. Returns the decision on both ranks.
Next agree(Group& pair, Next next) {
  const CallOptions now{.caller_waits = true};
  const Buffer decision{reinterpret_cast<std::byte*>(&next), 1, DType::u8};
  if (pair.rank() == 0) {
    pair.send(decision, 1, 1, now).wait();
  } else {
    pair.recv(decision, 0, 1, now).wait();
  }
  return next;
}

}  // namespace

double there_and_back(Group& pair, std::span<std::byte> data, std::size_t there, std::size_t back) {
  const CallOptions now{.caller_waits = true};
  const bool first = pair.rank() == 0;
  const auto part = [&](std::size_t n) { return Buffer{data.data(), n, DType::u8}; };
  const Clock::time_point begin = Clock::now();
  if (first) pair.send(part(there), 1, 0, now).wait();
  pair.recv(part(first ? back : there), 1 - pair.rank(), 0, now).wait();
  if (!first) pair.send(part(back), 0, 0, now).wait();
  return seconds_between(begin, Clock::now());
}

std::vector<Pair> in_rounds(std::set<Pair> pairs) {
  std::vector<Pair> ordered;
  while (!pairs.empty()) {
    std::set<int> busy;
    for (auto pair = pairs.begin(); pair != pairs.end();) {
      if (busy.contains(pair->first) || busy.contains(pair->second)) {
        ++pair;
        continue;
      }
      busy.insert({pair->first, pair->second});
      ordered.push_back(*pair);
      pair = pairs.erase(pair);
    }
  }
  return ordered;
}

/// The first rank sends and measures the time until the second rank has answered.
PairFigures measure_pair(const std::shared_ptr<engine::Engine>& engine, const Pair& pair,
                         std::string_view what) {
  NativeGroup group(engine, engine->make_group(fmt::format("calibration/{} of {} and {}", what,
                                                           pair.first, pair.second),
                                               {pair.first, pair.second}, kPatience));
  std::vector<std::byte> data(kMost);
  const auto time_of = [&](std::size_t bytes) { return there_and_back(group, data, bytes, 1); };
  PairFigures found;
  double least = time_of(1);
  for (int i = 0; i < kSmallTimes; ++i) least = std::min(least, time_of(1));
  found.latency_s = least / 2;
  for (std::size_t bytes = kFirst; bytes <= kMost; bytes *= 4) {
    double taken = std::numeric_limits<double>::infinity();
    double spent = 0;
    Next next = Next::again;
    for (int trial = 1; next == Next::again; ++trial) {
      const double seconds = time_of(bytes);
      spent += seconds;
      taken = std::min(taken, std::max(1e-9, seconds - least));
      const bool may_repeat = trial < kLargeTimes && spent + seconds <= kLongestOfSize;
      next = agree(group, taken < kLongEnough ? Next::larger
                          : may_repeat        ? Next::again
                                              : Next::done);
    }
    found.bytes_per_s = static_cast<double>(bytes) / taken;
    if (next == Next::done) break;
  }
  return found;
}

std::vector<int> members_of_my_node(const engine::Engine& engine) {
  const std::vector<int>& nodes = engine.nodes();
  std::vector<int> members;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    if (nodes[static_cast<std::size_t>(rank)] == nodes[static_cast<std::size_t>(engine.rank())])
      members.push_back(rank);
  }
  return members;
}

std::vector<std::string> all_gather_texts(Group& all, const std::string& text) {
  const CallOptions now{.caller_waits = true};
  const std::uint64_t own = text.size();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(all.size()));
  all.all_gather({&own, 1, DType::u64}, {sizes.data(), sizes.size(), DType::u64}, now).wait();
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::string joined(std::reduce(counts.begin(), counts.end()), '\0');
  all.all_gatherv({text.data(), text.size(), DType::u8}, {joined.data(), joined.size(), DType::u8},
                  counts, now)
      .wait();
  std::vector<std::string> texts;
  std::size_t from = 0;
  for (const std::size_t count : counts) {
    texts.push_back(joined.substr(from, count));
    from += count;
  }
  return texts;
}

}  // namespace mccl::native
