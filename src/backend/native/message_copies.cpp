#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "backend/native/group.h"
#include "backend/native/pair_figures.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::native {
namespace {

constexpr std::size_t kTimedBytes = std::size_t{256} << 10;
constexpr int kTurns = 6;

/// The indexes of Transport::equal_ways() of the transport through shared memory.
enum Copies : std::size_t { two_copies, one_copy };

/// The shortest times in seconds of a message of kTimedBytes bytes, by Copies.
using CopyTimes = std::array<double, 2>;

/// Measures both ways between two ranks, in turns. Both ranks must call it. The second rank of the
/// pair makes the links.
CopyTimes measure(const std::shared_ptr<engine::Engine>& engine, const std::vector<int>& pair) {
  std::deque<NativeGroup> groups;
  std::vector<std::byte> data(kTimedBytes);
  for (const Copies way : {two_copies, one_copy}) {
    if (engine->rank() == pair[1]) engine->take_way(pair[0], way);
    const std::string name = fmt::format("calibration/copies {} of {}", 2 - way, pair[0]);
    groups.emplace_back(engine, engine->make_group(name, pair, kPatience));
    there_and_back(groups.back(), data, 1, 1);  // makes the link
  }
  CopyTimes least;
  least.fill(std::numeric_limits<double>::infinity());
  for (int i = 0; i < kTurns; ++i) {
    for (const Copies way : {two_copies, one_copy})
      least[way] = std::min(least[way], there_and_back(groups[way], data, kTimedBytes, 1));
  }
  return least;
}

/// Adds up the times that the members measured. `cards` holds one text per rank: two times, or
/// nothing if the rank measured none.
CopyTimes sum_of(const std::vector<std::string>& cards, const std::vector<int>& members) {
  CopyTimes sum = {};
  for (int rank = 0; rank < static_cast<int>(cards.size()); ++rank) {
    const auto times = parse_numbers(cards[static_cast<std::size_t>(rank)]);
    if (!times || (!times->empty() && times->size() != sum.size()) ||
        std::ranges::any_of(*times, [](double time) { return time <= 0; })) {
      throw CorruptionError(fmt::format(
          "rank {} sent malformed times of messages; expected two positive numbers, or none",
          rank));
    }
    if (times->empty() || std::ranges::count(members, rank) == 0) continue;
    for (const Copies way : {two_copies, one_copy}) sum[way] += (*times)[way];
  }
  return sum;
}

}  // namespace

void warn_of_two_copies(engine::Engine& engine) {
  const std::vector<int> members = members_of_my_node(engine);
  if (engine.config().cross_memory != "on" || members.size() < 2 || members[1] != engine.rank())
    return;
  const bool crc = engine.config().transport_crc;
  const std::vector<std::string> ways = engine.equal_ways(members[0]);
  if (ways.size() > 1 && !crc) return;
  engine.log().warn(
      "MCCL_CROSS_MEMORY is on, but large messages between the ranks of this host are copied "
      "twice, through shared memory: {}",
      crc ? "they have checksums (MCCL_TRANSPORT_CRC)" : ways.front());
}

void choose_copies(const std::shared_ptr<engine::Engine>& engine, Group& all) {
  const Config& config = engine->config();
  if (config.cross_memory != "auto" || config.transport_crc || engine->nodes().empty()) return;
  // Each two successive ranks of a node form a pair. The second rank makes the links. The second
  // rank of a node's first pair logs for the node.
  const std::vector<int> members = members_of_my_node(*engine);
  const auto index =
      static_cast<std::size_t>(std::ranges::find(members, engine->rank()) - members.begin());
  const bool dials = index % 2 == 1;
  const std::vector<std::string> ways =
      dials ? engine->equal_ways(members[index - 1]) : std::vector<std::string>();
  const std::string obstacle = ways.size() == 1 ? ways.front() : "";
  std::string card;
  if (dials || index + 1 < members.size()) {
    const std::size_t first = index - index % 2;
    const CopyTimes times = measure(engine, {members[first], members[first + 1]});
    if (dials && obstacle.empty()) card = fmt::format("{:.4g} {:.4g}", times[0], times[1]);
  }
  const CopyTimes sum = sum_of(all_gather_texts(all, card), members);
  const Copies best = sum[one_copy] < sum[two_copies] ? one_copy : two_copies;
  for (const int member : members) {
    if (member < engine->rank()) engine->take_way(member, best);
  }
  if (best == one_copy) engine->read_processes();
  if (index != 1) return;
  engine->log().info("messages of more than 32 KiB between the ranks of this host are copied {}",
                     best == one_copy ? "once, from the memory of the sending process"
                     : obstacle.empty()
                         ? "twice, through shared memory, because that was measured to be faster"
                         : "twice, through shared memory: " + obstacle);
}

}  // namespace mccl::native
