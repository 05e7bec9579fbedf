#include "backend/native/cable_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <locale>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "backend/native/group.h"
#include "mccl/error.h"
#include "rendezvous/exchange.h"

namespace mccl::native {
namespace {

using Pair = std::pair<int, int>;

/// Enough to see the rate of a slow cable and not the room of its buffers; then as much as takes
/// this long, so that a fast one shows itself too.
constexpr std::size_t kFirst = std::size_t{256} << 10;
constexpr std::size_t kMost = std::size_t{16} << 20;
constexpr double kLongEnough = 0.02;
constexpr int kSmallTimes = 10;
constexpr std::chrono::seconds kPatience{30};

struct Figures {
  double latency_s = 0;
  double bytes_per_s = 0;
};

/// Pairs in rounds, no rank twice in one, so that pairs of a round can measure at once. The same on
/// all ranks.
std::vector<std::vector<Pair>> rounds_of(const Cabling& cabling) {
  std::set<Pair> left;
  for (const Cable& cable : cabling.cables()) left.emplace(cable.a, cable.b);
  std::vector<std::vector<Pair>> rounds;
  while (!left.empty()) {
    std::set<int> busy;
    std::vector<Pair>& round = rounds.emplace_back();
    for (const Pair& pair : left) {
      if (busy.contains(pair.first) || busy.contains(pair.second)) continue;
      busy.insert({pair.first, pair.second});
      round.push_back(pair);
    }
    for (const Pair& pair : round) left.erase(pair);
  }
  return rounds;
}

/// Of a pair, by its first rank; the second answers.
class Measurement {
 public:
  Measurement(const std::shared_ptr<engine::Engine>& engine, const Pair& pair)
      : group_(engine, engine->make_group(
                           fmt::format("calibration/cables of {} and {}", pair.first, pair.second),
                           {pair.first, pair.second}, kPatience)),
        data_(kMost) {}

  Figures run() {
    Figures found;
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

/// "a b latency rate" for each pair.
std::map<Pair, Figures> parse(const std::string& card, int rank) {
  std::istringstream stream(card);
  stream.imbue(std::locale::classic());
  std::map<Pair, Figures> found;
  int a = 0;
  int b = 0;
  Figures figures;
  while (stream >> a >> b >> figures.latency_s >> figures.bytes_per_s) {
    const bool sane = std::isfinite(figures.latency_s) && figures.latency_s > 0 &&
                      std::isfinite(figures.bytes_per_s) && figures.bytes_per_s > 0;
    if (!sane || a != rank) break;
    found[{a, b}] = figures;
  }
  if (!stream.eof())
    throw CorruptionError(fmt::format("rank {} tells of its cables in what is no figures", rank));
  return found;
}

}  // namespace

void measure_cables(const std::shared_ptr<engine::Engine>& engine) {
  if (engine->cabling().is_one_network()) return;
  std::string card;
  for (const auto& round : rounds_of(engine->cabling())) {
    for (const Pair& pair : round) {
      if (pair.first != engine->rank() && pair.second != engine->rank()) continue;
      const Figures found = Measurement(engine, pair).run();
      if (pair.first == engine->rank()) {
        card += fmt::format("{} {} {:.4g} {:.4g} ", pair.first, pair.second, found.latency_s,
                            found.bytes_per_s);
      }
    }
  }
  const rendezvous::Exchange exchange(engine->store(), engine->rank(), engine->size(),
                                      Clock::now() + kPatience);
  const std::vector<std::string> cards = exchange.all_gather("cables", card);
  std::map<Pair, Figures> all;
  for (int rank = 0; rank < engine->size(); ++rank)
    all.merge(parse(cards[static_cast<std::size_t>(rank)], rank));
  std::vector<Cable> cables = engine->cabling().cables();
  for (Cable& cable : cables) {
    const auto found = all.find({cable.a, cable.b});
    if (found == all.end()) continue;
    const auto together = engine->cabling().between(cable.a, cable.b).size();
    cable.latency_s = found->second.latency_s;
    cable.bytes_per_s = found->second.bytes_per_s / static_cast<double>(together);
  }
  Cabling measured(engine->size(), std::move(cables));
  for (const Cable& cable : measured.cables()) {
    engine->log().info("{}: {:.3g} us, {:.3g} Gbit/s", text_of(cable), cable.latency_s * 1e6,
                       cable.bytes_per_s * 8e-9);
  }
  engine->learn(std::move(measured));
}

}  // namespace mccl::native
