// Links of groups that this rank has destroyed. Each link stays open until its peer has received
// everything that this rank wrote to the link, because the peer's calls may still need that data.
#pragma once

#include <poll.h>

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rank.h"
#include "transport/link.h"

namespace mccl::engine {

/// A link that its group no longer uses.
struct DepartingLink {
  WorldRank peer;
  std::unique_ptr<transport::Link> link;
  std::size_t unsent = 0;        ///< Unacknowledged bytes at the last check.
  Clock::time_point since = {};  ///< Time at which the link was added to Departing.
  Clock::time_point moved = {};  ///< Time at which `unsent` last decreased.
};
/// Each element is allocated when its link is attached to a group, so that moving the link to
/// Departing needs no memory.
using DepartingLinks = std::list<DepartingLink>;

/// The links that groups no longer use and whose data has not yet reached the peers. Used under the
/// engine's progress lock.
class Departing {
 public:
  /// `patience` (MCCL_CONNECT_TIMEOUT) is the time after which a link whose peer has accepted
  /// nothing is given up, with a warning to `log`. A link whose peer accepts bytes slowly is
  /// given up after ten times that time. `log` must outlive this object.
  Departing(Clock::duration patience, const Log& log) : patience_(patience), log_(log) {}

  void add(DepartingLinks links, Clock::time_point now) noexcept;
  /// Destroys the links whose peers have received everything, and gives up links as the constructor
  /// describes.
  void sweep(Clock::time_point now) noexcept;
  /// Gives up the links to a peer that fell silent. No-op for Loss::reported, because the peer's
  /// operating system then closes the links.
  void lose(WorldRank peer, transport::Loss loss) noexcept;
  /// Must be called when this rank leaves the job: gives up every link that remains at `end`, which
  /// is MCCL_CONNECT_TIMEOUT later.
  void end_by(Clock::time_point end) noexcept { end_ = end; }
  /// Gives up all links, with a warning that contains the reason, for example "has fallen silent".
  void give_up(std::string_view why) noexcept;
  /// Returns the peers and the number of bytes that they have not received, for example "rank 3
  /// (1234 bytes)".
  std::string text() const;
  void watch(std::vector<pollfd>& descriptors) const;
  bool empty() const { return links_.empty(); }

 private:
  bool is_over(DepartingLink& departing, Clock::time_point now) const noexcept;
  void warn(const DepartingLink& departing, std::string_view why) const noexcept;

  const Clock::duration patience_;
  const Log& log_;
  Clock::time_point end_ = Clock::time_point::max();  ///< See end_by().
  DepartingLinks links_;
};

}  // namespace mccl::engine
