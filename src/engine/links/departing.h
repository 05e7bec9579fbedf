// Links of groups that this rank has destroyed. Each stays until its peer has received what was
// written, since calls that have completed may depend on that.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <string>
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
};

/// Used under the engine's progress lock.
class Departing {
 public:
  /// A link is given up once its peer has taken nothing for `patience`, with a warning to `log`,
  /// which outlives this object.
  Departing(Clock::duration patience, const Log& log) : patience_(patience), log_(log) {}

  void add(std::vector<DepartingLink> links, Clock::time_point now);
  /// Destroys the links whose peers have received everything, and gives up those that stand still.
  void sweep(Clock::time_point now);
  /// Gives up the links to a peer that fell silent. A peer whose end is told ends its links itself.
  void lose(WorldRank peer, transport::Loss loss);
  void watch(std::vector<pollfd>& descriptors) const;
  bool empty() const { return links_.empty(); }

 private:
  struct Waiting {
    DepartingLink departing;
    std::size_t unsent;
    Clock::time_point moved;  ///< When `unsent` became less.
  };

  bool is_over(Waiting& waiting, Clock::time_point now) const;
  void warn(const DepartingLink& departing, std::size_t unsent, const std::string& why) const;

  const Clock::duration patience_;
  const Log& log_;
  std::vector<Waiting> links_;
};

}  // namespace mccl::engine
