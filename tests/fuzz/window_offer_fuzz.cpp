// Neighbours that offer windows of any size at any place of their memory. What is settled on, a
// rank can read; everything else is refused.
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "engine/group_window.h"
#include "input.h"
#include "mccl/error.h"

using namespace mccl::engine;
using mccl::rendezvous::Neighbour;
using mccl::transport::shm::Arena;
using mccl::transport::shm::Descriptor;
using mccl::transport::shm::PeerArena;

namespace {

/// Little, so that a case costs little.
constexpr std::size_t kArenaBytes = std::size_t{128} << 10;

WindowOffer offer_of(mccl::fuzz::Input& input) {
  const auto call_bytes = input.number<std::uint64_t>();
  const auto offset = input.number<std::uint64_t>();
  return {call_bytes, {offset, input.number<std::uint64_t>()}};
}

/// A whole call, so that every line and block is touched that it may use.
void read_all(GroupWindow& group) {
  if (!group.window()) return;
  for (const std::size_t bytes : {std::size_t{1}, group.call_bytes()}) {
    group.window()->begin(1, bytes, 0);
    if (!group.window()->open()) return;
    for (const int rank : group.neighbours()) {
      mccl::fuzz::touch({group.window()->published_by(rank), bytes});
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
    GroupWindow group(0, std::vector<int>(ranks, 0));
    group.offer(own);
    for (int rank = 1; rank < static_cast<int>(ranks); ++rank) group.take(rank, offer_of(input));
    mccl::fuzz::require(!group.pending(), "every offer is there, and one is waited for");
    group.settle([&](int) -> const Neighbour& { return neighbour; });
    read_all(group);
  } catch (const mccl::CorruptionError&) {
  }
  return 0;
}
