// The votes of members that break the protocol by which a group finds its survivors. A step is a
// vote, the loss of a member, or a new round of this rank. Nothing but a bad vote may be refused,
// and a decision must not change.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "engine/groups/agreement.h"
#include "input.h"
#include "mccl/error.h"

using namespace mccl::engine;
using mccl::GroupRank;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr std::size_t kMembers = 3;
  static constexpr GroupRank kSelf(0);
  mccl::fuzz::Input input(data, size);
  Agreement agreement(kSelf, kMembers, [](GroupRank to, const Vote& vote) {
    mccl::fuzz::require(to != kSelf, "this rank votes to itself");
    mccl::fuzz::require(vote.standings.size() == kMembers, "a vote lacks members");
  });
  std::optional<Standings> decided;  // in the current round
  while (!input.empty()) {
    const std::size_t step = input.byte();
    const GroupRank member(1 + static_cast<int>(step / 4 % 2));
    const std::uint64_t round_before = agreement.round();
    if (step % 4 == 0) {
      agreement.enter();
    } else if (step % 4 == 1) {
      agreement.lose(member, static_cast<Standing>(1 + input.byte() % (kStandingCount - 1)));
    } else {
      const std::uint64_t round = input.byte();
      const auto bytes = input.take(input.byte() % (2 * kMembers));
      try {
        agreement.hear(member, {.round = round,
                                .decided = step % 4 == 3,
                                .standings = decode_standings({bytes.begin(), bytes.end()})});
      } catch (const mccl::CorruptionError&) {
      }
    }
    if (agreement.round() != round_before) decided.reset();
    const Standings* const decision = agreement.decision();
    if (!decision || (*decision)[kSelf] != Standing::present) continue;
    mccl::fuzz::require(!decided || std::ranges::equal(*decided, *decision),
                        "a decision has changed");
    decided = *decision;
  }
  return 0;
}
