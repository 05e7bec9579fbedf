// How a group comes to its shared window. Each rank takes memory and tells all members how much;
// the smallest offer counts everywhere, so that all choose their schedules alike. That happens at
// the first collective, so that groups without one take nothing; until every offer is there, it
// does not start.
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

/// What a call can publish, where there is as much memory: several pieces that stay in the
/// second-level cache together.
inline constexpr std::size_t kUsualCallBytes = std::size_t{1} << 20;

/// What a rank offers: room for calls that publish so much, and where that is in its arena (for its
/// neighbours).
struct WindowOffer {
  std::uint64_t call_bytes = 0;
  node::RangePlace place;
};
transport::Blob encode(const WindowOffer& offer);
/// Throws CorruptionError when the bytes are no offer.
WindowOffer decode_window_offer(std::span<const std::byte> bytes);

/// Used under the engine's progress lock.
class GroupWindow {
 public:
  /// `nodes`: of each rank; empty when no two share one, and then nothing is ever pending.
  GroupWindow(GroupRank rank, ByRank<GroupRank, int> nodes);

  /// The others of this rank's node, in rank order.
  const std::vector<GroupRank>& neighbours() const { return neighbours_; }

  bool offered() const { return settled_ || offers_[rank_].has_value(); }
  /// Takes memory for this rank's window, as much as there is up to the usual size, and says what
  /// to tell the other members.
  WindowOffer offer(const std::shared_ptr<node::Arena>& arena);
  /// False where no two ranks share a node, when the member has offered already, and after
  /// release().
  bool take(GroupRank member, const WindowOffer& offer);
  /// Whether offers have not come; from the beginning, where there can be a window.
  bool pending() const { return missing_ > 0; }
  /// Whether it is known how large the window is; from the beginning where there is none.
  bool settled() const { return settled_; }
  /// The members whose offers have not come.
  std::vector<GroupRank> missing_members() const;

  /// Maps the neighbours' windows once every offer is there. `neighbour` finds a rank.
  using Find = std::function<const node::Neighbour&(GroupRank rank)>;
  void settle(const Find& neighbour);
  /// Bytes that a rank can have published at a time; 0 where there is no window. Equal on all
  /// ranks.
  std::size_t call_bytes() const { return call_bytes_; }
  /// Gives the memory back, for good. Calls `let_go` for each range that a neighbour has offered
  /// and this rank has not mapped: the neighbour waits for that.
  using LetGo = std::function<void(GroupRank member, const node::RangePlace& place)>;
  void release(const LetGo& let_go) noexcept;
  /// Null when this rank has no neighbours, or there is no window.
  node::Window* window() { return window_ ? &*window_ : nullptr; }

 private:
  std::size_t usual() const;

  const GroupRank rank_;
  const ByRank<GroupRank, int> nodes_;
  std::vector<GroupRank> neighbours_;
  ByRank<GroupRank, std::optional<WindowOffer>> offers_;
  std::size_t missing_ = 0;
  bool settled_ = false;
  bool released_ = false;
  node::Range own_;
  std::size_t call_bytes_ = 0;
  std::optional<node::Window> window_;
};

/// What a rank says of its call in the window.
using Label = std::span<std::byte, node::kLabelBytes>;
void write_label(const Call& call, Label label);
/// Throws CorruptionError for what write_label cannot have written.
Call call_of(std::span<const std::byte, node::kLabelBytes> label);

}  // namespace mccl::engine
