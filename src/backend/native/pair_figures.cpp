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
    std::size_t bytes = kFirst;
    for (;; bytes *= 4) {
      const double taken = std::max(1e-9, there_and_back(bytes) - least);
      found.bytes_per_s = static_cast<double>(bytes) / taken;
      if (!goes_on(bytes * 4 <= kMost && taken < kLongEnough)) return found;
    }
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

  /// The first rank decides for both.
  bool goes_on(bool wanted) {
    const CallOptions now{.caller_waits = true};
    std::byte word{wanted};
    const Buffer told{&word, 1, DType::u8};
    if (group_.rank() == 0) {
      group_.send(told, 1, 1, now).wait();
    } else {
      group_.recv(told, 0, 1, now).wait();
    }
    return word != std::byte{0};
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
