// Sets up the shared window of a group. Each rank allocates memory and announces the size of that
// memory to all members. All members use the smallest offer, so that they choose the same
// schedules. The exchange starts with the first collective, so groups without collectives allocate
// nothing. That collective waits until every offer has arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "engine/calls/call.h"
#include "node/neighbour.h"
#include "node/window.h"
#include "transport/transport.h"

namespace mccl::engine {

/// Usual capacity of a window: the number of bytes that a rank can have published at a time. It is
/// so small that several pieces of a call fit into the L2 cache together.
inline constexpr std::size_t kUsualCallBytes = std::size_t{1} << 20;

/// A rank's offer: how many bytes a call may publish, and, for the rank's neighbours, the location
/// of the window in the rank's arena (node/arena.h).
struct WindowOffer {
  std::uint64_t call_bytes = 0;
  node::RangePlace place;
  /// True if the rank has mapped the heaps of all its neighbours (node/heap.h), or they have none.
  bool reads_heaps = false;
  /// True if the rank reads the memory of its neighbours' processes (node/peer_memory.h).
  bool reads_processes = false;
};
transport::Blob encode(const WindowOffer& offer);
/// Throws CorruptionError if the bytes are not an offer.
WindowOffer decode_window_offer(std::span<const std::byte> bytes);

/// The shared window of one group: this rank's memory, and the neighbours' memory that this rank
/// maps. Used under the engine's progress lock.
class GroupWindow {
 public:
  /// `nodes`: the node of each rank. Empty if no two ranks share a node; pending() is then always
  /// false.
  GroupWindow(GroupRank rank, ByRank<GroupRank, int> nodes);

  /// The other ranks of this rank's node, in rank order.
  const std::vector<GroupRank>& neighbours() const { return neighbours_; }

  bool offered() const { return settled_ || offers_[rank_].has_value(); }
  using Find = std::function<const node::Neighbour&(GroupRank rank)>;
  /// Allocates this rank's window, maps the heaps of its neighbours, and returns the offer for the
  /// other members. The window has the usual size, or less if shared memory is scarce. `neighbour`
  /// returns the neighbour with a given rank. `reads_processes`: whether this rank reads the memory
  /// of its neighbours' processes where the system permits it.
  WindowOffer offer(const std::shared_ptr<node::Arena>& arena, const Find& neighbour,
                    bool reads_processes);
  /// Records a member's offer. Returns false if no two ranks share a node, if the member has made
  /// an offer already, or after release().
  bool take(GroupRank member, const WindowOffer& offer);
  /// True until every member's offer has arrived. Always false if no two ranks share a node.
  bool pending() const { return missing_ > 0; }
  /// True once the size of the window is known. Always true if no two ranks share a node.
  bool settled() const { return settled_; }
  /// The members whose offers have not arrived.
  std::vector<GroupRank> missing_members() const;

  /// Maps the neighbours' windows. Every offer must have arrived.
  void settle(const Find& neighbour);
  /// Place of a buffer of this rank (node::Heap::place_of()) if neighbours may read it where it
  /// lies; else 0.
  std::uint64_t place_of(const void* memory, std::size_t bytes) const {
    return heap_ ? heap_->place_of(memory, bytes) : 0;
  }
  /// True if all ranks of this node read the memory of each other's processes.
  bool reads_processes() const { return reads_processes_; }
  /// Capacity of the window: the maximum number of bytes that a rank can have published at a time;
  /// 0 if there is no window. Equal on all ranks.
  std::size_t call_bytes() const { return call_bytes_; }
  using LetGo = std::function<void(GroupRank member, const node::RangePlace& place)>;
  /// Releases the memory for good. Calls `let_go` for each range that a neighbour has offered and
  /// this rank has not mapped: the neighbour reuses the range only after this rank has released it.
  void release(const LetGo& let_go) noexcept;
  /// The window; null if this rank has no neighbours, if call_bytes() is 0, and before settle().
  node::Window* window() { return window_ ? &*window_ : nullptr; }

 private:
  std::size_t usual() const;
  bool map_heaps(const Find& neighbour) const;

  const GroupRank rank_;
  const ByRank<GroupRank, int> nodes_;
  std::vector<GroupRank> neighbours_;
  ByRank<GroupRank, std::optional<WindowOffer>> offers_;
  std::size_t missing_ = 0;
  bool settled_ = false;
  bool released_ = false;
  node::Range own_;
  /// This rank's heap, from offer() on; null after settle() if a neighbour cannot read it.
  std::shared_ptr<const node::Heap> heap_;
  bool reads_processes_ = false;
  std::size_t call_bytes_ = 0;
  std::optional<node::Window> window_;
};

/// The bytes of the window in which a rank describes its call to its neighbours.
using Label = std::span<std::byte, node::kLabelBytes>;
void write_label(const Call& call, Label label);
/// Throws CorruptionError for bytes that write_label() cannot have written.
Call call_of(std::span<const std::byte, node::kLabelBytes> label);

}  // namespace mccl::engine
