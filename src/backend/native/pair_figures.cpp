#include "backend/native/pair_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "backend/native/group.h"

namespace mccl::native {
namespace {

/// Enough to see the rate of a slow cable and not the room of its buffers; then as much as takes
/// this long, so that a fast one shows itself too.
constexpr std::size_t kFirst = std::size_t{256} << 10;
constexpr std::size_t kMost = std::size_t{16} << 20;
constexpr double kLongEnough = 0.02;
constexpr int kSmallTimes = 10;
/// What took long goes again: it may have been the processor that was slow to come, and not the
/// cable.
constexpr int kLargeTimes = 3;

/// What comes after a trial.
enum class Next : unsigned char { done, again, larger };

/// Of a pair, by its first rank; the second answers.
class Measurement {
 public:
  Measurement(const std::shared_ptr<engine::Engine>& engine, const Pair& pair,
              std::string_view what)
      : group_(engine, engine->make_group(fmt::format("calibration/{} of {} and {}", what,
                                                      pair.first, pair.second),
                                          {pair.first, pair.second}, kPatience)),
        data_(kMost) {}

  PairFigures run() {
    PairFigures found;
    double least = there_and_back(1);
    for (int i = 0; i < kSmallTimes; ++i) least = std::min(least, there_and_back(1));
    found.latency_s = least / 2;
    for (std::size_t bytes = kFirst; bytes <= kMost; bytes *= 4) {
      double taken = there_and_back(bytes);
      Next next = agree_after(bytes, taken - least, 1);
      for (int trial = 2; next == Next::again; ++trial) {
        taken = std::min(taken, there_and_back(bytes));
        next = agree_after(bytes, taken - least, trial);
      }
      found.bytes_per_s = static_cast<double>(bytes) / std::max(1e-9, taken - least);
      if (next == Next::done) break;
    }
    return found;
  }

 private:
  /// Bytes there, a word back.
  double there_and_back(std::size_t bytes) {
    const CallOptions now{.caller_waits = true};
    const bool first = group_.rank() == 0;
    const auto part = [&](std::size_t n) { return Buffer{data_.data(), n, DType::u8}; };
    const Clock::time_point begin = Clock::now();
    if (first) group_.send(part(bytes), 1, 0, now).wait();
    group_.recv(part(first ? 1 : bytes), 1 - group_.rank(), 0, now).wait();
    if (!first) group_.send(part(1), 0, 0, now).wait();
    return seconds_between(begin, Clock::now());
  }

  /// What comes after so many trials of a size, of which the shortest took so long. The first rank
  /// decides for both.
  Next agree_after(std::size_t bytes, double seconds, int trials) {
    const CallOptions now{.caller_waits = true};
    Next next = Next::done;
    const Buffer told{reinterpret_cast<std::byte*>(&next), 1, DType::u8};
    if (group_.rank() == 0) {
      if (seconds >= kLongEnough) {
        if (trials < kLargeTimes) next = Next::again;
      } else {
        next = Next::larger;
      }
      group_.send(told, 1, 1, now).wait();
    } else {
      group_.recv(told, 0, 1, now).wait();
    }
    return next;
  }

  NativeGroup group_;
  std::vector<std::byte> data_;
};

}  // namespace

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

PairFigures measure_pair(const std::shared_ptr<engine::Engine>& engine, const Pair& pair,
                         std::string_view what) {
  return Measurement(engine, pair, what).run();
}

}  // namespace mccl::native
