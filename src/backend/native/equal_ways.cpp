#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/native/pair_figures.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::native {
namespace {

/// Another route replaces a pair's first route only if its time is below this fraction of the first
/// route's time. Smaller differences may be noise.
constexpr double kClearly = 0.8;
/// Routes are compared by the time that a message of this many bytes would take.
constexpr double kBytes = 256 << 10;
/// Maximum number of routes to one peer that are measured.
constexpr int kMostWays = 16;
/// Maximum number of pairs with several routes. If there are more, no routes are measured, because
/// each pair may delay the start of the job by some tenths of a second.
constexpr std::size_t kMostPairs = 64;

double seconds_of(const PairFigures& figures) {
  return figures.latency_s + kBytes / std::max(1.0, figures.bytes_per_s);
}

/// Returns the number of routes of each pair of ranks that has several routes. The first rank of a
/// pair is the higher one, which connects to the other. `cards` holds one text per rank: "peer
/// count" for each pair of which that rank is the first. The result is the same on all ranks.
std::map<Pair, int> counts_of(const std::vector<std::string>& cards) {
  std::map<Pair, int> counts;
  for (int rank = 0; rank < static_cast<int>(cards.size()); ++rank) {
    const auto numbers = parse_numbers(cards[static_cast<std::size_t>(rank)]);
    bool sane = numbers && numbers->size() % 2 == 0;
    for (std::size_t at = 0; sane && at < numbers->size(); at += 2) {
      const double peer = (*numbers)[at];
      const double count = (*numbers)[at + 1];
      sane = peer >= 0 && peer < rank && count >= 2 && count <= kMostWays;
      if (sane) counts[{rank, static_cast<int>(peer)}] = static_cast<int>(count);
    }
    if (!sane) {
      throw CorruptionError(
          fmt::format("rank {} sent malformed counts of its equivalent routes to peers; expected "
                      "pairs, each of a peer below that rank and a count from 2 to {}",
                      rank, kMostWays));
    }
  }
  return counts;
}

std::string text_of(const std::string& way, const PairFigures& figures) {
  return fmt::format("{} ({:.3g} us, {:.3g} Gbit/s)", way, figures.latency_s * 1e6,
                     figures.bytes_per_s * 8e-9);
}

/// Measures the routes of one pair. The first rank measures the times; the second rank only answers
/// the messages of the first. `ways` names the routes on the first rank; the second does not use
/// it.
void try_ways(const std::shared_ptr<engine::Engine>& engine, const Pair& pair, int count,
              const std::vector<std::string>& ways) {
  const bool dials = pair.first == engine->rank();
  std::vector<PairFigures> found;
  for (int way = 0; way < count; ++way) {
    if (dials) engine->take_way(pair.second, static_cast<std::size_t>(way));
    found.push_back(measure_pair(engine, pair, fmt::format("way {}", way)));
  }
  if (!dials) return;
  std::size_t best = 0;
  for (std::size_t way = 1; way < found.size(); ++way) {
    const double margin = best == 0 ? kClearly : 1;
    if (seconds_of(found[way]) < margin * seconds_of(found[best])) best = way;
  }
  engine->take_way(pair.second, best);
  std::vector<std::string> tried;
  for (std::size_t way = 0; way < found.size(); ++way)
    tried.push_back(text_of(ways[way], found[way]));
  engine->log().info("rank {}: equivalent routes: {}; links use {}", pair.second,
                     fmt::join(tried, "; "), ways[best]);
}

}  // namespace

void try_equal_ways(const std::shared_ptr<engine::Engine>& engine, Group& all) {
  if (engine->is_one_node()) return;
  std::string card;
  // The names that the counts of the card describe. A later list may have another length.
  std::map<int, std::vector<std::string>> ways;
  const std::vector<int> here = members_of_my_node(*engine);
  for (int peer = 0; peer < engine->rank(); ++peer) {
    if (std::ranges::count(here, peer) != 0) continue;  // see choose_copies()
    ways[peer] = engine->equal_ways(peer);
    const std::size_t count = ways[peer].size();
    if (count > 1) card += fmt::format("{} {} ", peer, std::min<std::size_t>(count, kMostWays));
  }
  const std::map<Pair, int> counts = counts_of(all_gather_texts(all, card));
  if (counts.size() > kMostPairs) {
    if (!card.empty())
      engine->log().info(
          "{} pairs of ranks have equivalent routes, but MCCL measures the routes of at most {} "
          "pairs: links use the first route of each pair",
          counts.size(), kMostPairs);
    return;
  }
  std::set<Pair> pairs;
  for (const auto& [pair, count] : counts) pairs.insert(pair);
  for (const Pair& pair : in_rounds(std::move(pairs))) {
    if (pair.first == engine->rank() || pair.second == engine->rank())
      try_ways(engine, pair, counts.at(pair), ways[pair.second]);
  }
}

}  // namespace mccl::native
