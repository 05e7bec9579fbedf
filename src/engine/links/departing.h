// Links of groups that this rank has destroyed. Each stays until its peer has received what was
// written, since calls that have completed may depend on that.
#pragma once

#include <poll.h>

#include <cstddef>
#include <list>
#include <memory>
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
  std::size_t unsent = 0;        ///< Bytes, when it was looked at last.
  Clock::time_point since = {};  ///< When it began to depart.
  Clock::time_point moved = {};  ///< When `unsent` became less.
};
/// Elements are made with the links, so that a link departs where memory has run out.
using DepartingLinks = std::list<DepartingLink>;

/// Used under the engine's progress lock.
class Departing {
 public:
  /// A link is given up once its peer has taken nothing for `patience`, and after ten times that in
  /// all, with a warning to `log`, which outlives this object.
  Departing(Clock::duration patience, const Log& log) : patience_(patience), log_(log) {}

  void add(DepartingLinks links, Clock::time_point now) noexcept;
  /// Destroys the links whose peers have received everything, and gives up those that stand still.
  void sweep(Clock::time_point now) noexcept;
  /// Gives up the links to a peer that fell silent. A peer whose end is told ends its links itself.
  void lose(WorldRank peer, transport::Loss loss) noexcept;
  void watch(std::vector<pollfd>& descriptors) const;
  bool empty() const { return links_.empty(); }

 private:
  bool is_over(DepartingLink& departing, Clock::time_point now) const noexcept;
  void warn(const DepartingLink& departing, std::string_view why) const noexcept;

  const Clock::duration patience_;
  const Log& log_;
  DepartingLinks links_;
};

}  // namespace mccl::engine
