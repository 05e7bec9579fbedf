#include <fmt/format.h>

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

/// Parses the text that rank `rank` has published: "a b latency rate" for each measured pair whose
/// lower rank, a, is `rank`. Units: seconds, bytes per second.
std::map<Pair, PairFigures> parse(const std::string& card, int rank, int size) {
  constexpr std::size_t kFields = 4;
  const auto numbers = parse_numbers(card);
  bool sane = numbers && numbers->size() % kFields == 0;
  std::map<Pair, PairFigures> found;
  for (std::size_t at = 0; sane && at < numbers->size(); at += kFields) {
    const double* const record = numbers->data() + at;
    sane =
        record[0] == rank && record[1] >= 0 && record[1] < size && record[2] > 0 && record[3] > 0;
    if (sane) found[{rank, static_cast<int>(record[1])}] = {record[2], record[3]};
  }
  if (!sane) {
    throw CorruptionError(
        fmt::format("rank {} sent malformed cable measurements; expected pairs of ranks, each with "
                    "a latency and a rate: {}",
                    rank, in_quotes(card)));
  }
  return found;
}

}  // namespace

void measure_cables(const std::shared_ptr<engine::Engine>& engine, Group& all) {
  if (engine->cabling().is_one_network()) return;
  std::string card;
  std::set<Pair> joined;
  for (const Cable& cable : engine->cabling().cables()) joined.emplace(cable.a, cable.b);
  for (const Pair& pair : in_rounds(std::move(joined))) {
    if (pair.first != engine->rank() && pair.second != engine->rank()) continue;
    const PairFigures found = measure_pair(engine, pair, "cables");
    if (pair.first == engine->rank()) {
      card += fmt::format("{} {} {:.4g} {:.4g} ", pair.first, pair.second, found.latency_s,
                          found.bytes_per_s);
    }
  }
  const std::vector<std::string> cards = all_gather_texts(all, card);
  std::map<Pair, PairFigures> measured_pairs;
  for (int rank = 0; rank < engine->size(); ++rank)
    measured_pairs.merge(parse(cards[static_cast<std::size_t>(rank)], rank, engine->size()));
  std::vector<Cable> cables = engine->cabling().cables();
  for (Cable& cable : cables) {
    const auto found = measured_pairs.find({cable.a, cable.b});
    if (found == measured_pairs.end()) continue;
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
