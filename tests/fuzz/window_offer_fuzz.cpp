// Neighbours offer windows of any size at any place in their memory. An agreed window must be
// readable; everything else must be refused.
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/machine.h"
#include "engine/collectives/group_window.h"
#include "input.h"
#include "mccl/error.h"

using namespace mccl::engine;
using mccl::ByRank;
using mccl::Descriptor;
using mccl::GroupRank;
using mccl::node::Arena;
using mccl::node::Mapping;
using mccl::node::Neighbour;
using mccl::node::PeerArena;

namespace {

/// Small, so that a run is cheap.
constexpr std::size_t kArenaBytes = std::size_t{128} << 10;
constexpr std::size_t kHeapBytes = std::size_t{64} << 10;

/// Decodes an offer from the input, in most cases of the right length.
WindowOffer offer_of(mccl::fuzz::Input& input) {
  const bool cut = input.byte() == 0;
  std::vector<std::byte> told(cut ? input.byte() : 32);
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
      std::vector<std::byte> copy(bytes);
      if (group.window()->copy_from_process(rank.number(), 0, bytes, copy)) continue;
      const std::byte* const heap = group.window()->memory_of(rank.number(), 0, bytes, bytes);
      if (heap) mccl::fuzz::touch({heap, bytes});
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
  const auto theirs = Arena::make(kArenaBytes, kHeapBytes);
  // The neighbour is this process, so it reads its own memory at any address.
  Neighbour neighbour{
      .arena = PeerArena(Descriptor(::dup(theirs->descriptor()))),
      .bell_pipe = Descriptor(),
      .process = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))),
      .pid = ::getpid()};
  try {
    GroupWindow group(GroupRank(0), ByRank<GroupRank, int>(ranks, 0));
    const auto find = [&](GroupRank) -> const Neighbour& { return neighbour; };
    group.offer(own, find, true);
    for (int rank = 1; rank < static_cast<int>(ranks); ++rank) {
      group.take(GroupRank(rank), offer_of(input));
    }
    mccl::fuzz::require(!group.pending(), "every offer is there, and one is waited for");
    // The heads of calls, at the beginning of a window, say where the heap is to be read.
    const Mapping windows = Mapping::of(theirs->file(), mccl::page_bytes(), mccl::page_bytes());
    input.fill({windows.data(), windows.size()});
    group.settle(find);
    read_all(group);
  } catch (const mccl::CorruptionError&) {
  } catch (const mccl::PeerError&) {
    // The other rank has withdrawn its memory, or its process has no such memory.
  }
  return 0;
}
