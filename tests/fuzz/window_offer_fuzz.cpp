// Neighbours offer windows of any size at any place in their memory. An agreed window must be
// readable; everything else must be refused.
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "engine/collectives/group_window.h"
#include "input.h"
#include "mccl/error.h"

using namespace mccl::engine;
using mccl::ByRank;
using mccl::Descriptor;
using mccl::GroupRank;
using mccl::node::Arena;
using mccl::node::Neighbour;
using mccl::node::PeerArena;

namespace {

/// Small, so that a run is cheap.
constexpr std::size_t kArenaBytes = std::size_t{128} << 10;

/// Decodes an offer from the input, in most cases of the right length.
WindowOffer offer_of(mccl::fuzz::Input& input) {
  const bool cut = input.byte() == 0;
  std::vector<std::byte> told(cut ? input.byte() : 24);
  input.fill(told);
  const WindowOffer offer = decode_window_offer(told);
  mccl::fuzz::require(encode(offer) == told, "an offer loses something of what it says");
  return offer;
}

/// Runs a whole call, which touches every line and block that it may use.
void read_all(GroupWindow& group) {
  if (!group.window()) return;
  for (const std::size_t bytes : {std::size_t{1}, group.call_bytes()}) {
    group.window()->begin(1, bytes, 0);
    if (!group.window()->open()) return;
    for (const GroupRank rank : group.neighbours()) {
      mccl::fuzz::touch({group.window()->published_by(rank.number()), bytes});
    }
    group.window()->arrive();
    group.window()->end();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::Input input(data, size);
  const std::size_t ranks = 2 + input.byte() % 3;
  const auto own = Arena::make(kArenaBytes);
  const auto theirs = Arena::make(kArenaBytes);
  Neighbour neighbour{PeerArena(Descriptor(::dup(theirs->descriptor()))), Descriptor()};
  try {
    GroupWindow group(GroupRank(0), ByRank<GroupRank, int>(ranks, 0));
    group.offer(own);
    for (int rank = 1; rank < static_cast<int>(ranks); ++rank) {
      group.take(GroupRank(rank), offer_of(input));
    }
    mccl::fuzz::require(!group.pending(), "every offer is there, and one is waited for");
    group.settle([&](GroupRank) -> const Neighbour& { return neighbour; });
    read_all(group);
  } catch (const mccl::CorruptionError&) {
  }
  return 0;
}
