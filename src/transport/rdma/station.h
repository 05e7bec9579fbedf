// What one rank has of one device: the channel that wakes it, its queue pairs, and those that only
// wait until what they have sent last is on its way.
#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "transport/link_key.h"
#include "transport/rdma/device.h"
#include "transport/rdma/pair.h"
#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

class Station;

/// A pair leaves its station when it goes.
struct Leaving {
  Station* station = nullptr;
  void operator()(Pair* pair) const;
};
using PairAtStation = std::unique_ptr<Pair, Leaving>;

/// The link that a pair is for.
struct LinkOf {
  WorldRank peer;
  LinkKey key;
};

/// Not thread-safe: used under the engine's progress lock. Outlives its pairs.
class Station {
 public:
  /// Throws VerbsError, and Error when the port is not active.
  Station(const std::shared_ptr<Verbs>& verbs, const std::string& device, int port);
  ~Station();
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  Device& device() { return *device_; }
  const Device& device() const { return *device_; }
  const Port& port() const { return port_; }
  /// As they are now: addresses come and go.
  std::vector<Gid> gids() const { return device_->context().gids(port_.number); }

  /// Throws VerbsError, Error.
  PairAtStation make_pair(Service service, const LinkOf& link);
  /// No longer used by a link: it goes when the peer has what was sent last.
  void retire(PairAtStation pair);

  /// What the device reports, and what time calls for. Now and then, also what has come on pairs
  /// that nobody uses: a peer may wait for an answer, or what was sent last has failed.
  void look(Clock::time_point now);
  /// Links that have ended while what was sent by them may not have arrived, and why; each once.
  std::vector<std::pair<LinkOf, std::string>> take_broken();
  Clock::time_point next_look() const;
  /// From now on completions make the descriptor readable, once. True when there may be any.
  bool arm();
  void disarm() { armed_ = false; }
  /// For poll(2): what the device reports, and completions where they were asked for, which is so
  /// once arm() was called and as long as nobody disarmed, or `always`.
  void watch(std::vector<pollfd>& descriptors, bool always = false) const;

  std::size_t pairs() const { return pairs_.size(); }
  /// In the child of a fork.
  void abandon() noexcept;

 private:
  friend struct Leaving;
  struct Departing {
    PairAtStation pair;
    Clock::time_point until;
  };

  void sweep(Clock::time_point now);

  const std::shared_ptr<Device> device_;
  Port port_;
  std::unique_ptr<Channel> channel_;  ///< Null where the device has none: who waits looks often.
  struct Place {
    Pair* pair;
    LinkOf link;
    bool told = false;  ///< That it is broken.
  };
  std::vector<Place> pairs_;
  std::vector<Departing> departing_;
  Clock::time_point next_poll_{};
  bool armed_ = false;
};

}  // namespace mccl::transport::rdma
