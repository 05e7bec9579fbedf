// A Station is one rank's use of one port of a device: the channel that wakes the rank, the queue
// pairs of its links, and retired pairs, whose last messages are still being sent.
#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank.h"
#include "transport/link.h"
#include "transport/rdma/device/device.h"
#include "transport/rdma/pair/pair.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

class Station;

/// Deleter of a pair: removes the pair from its station, then destroys the pair.
struct Leaving {
  Station* station = nullptr;
  void operator()(Pair* pair) const;
};
using PairAtStation = std::unique_ptr<Pair, Leaving>;

/// The link that a pair belongs to.
struct LinkOf {
  WorldRank peer;
  LinkKey key;
};

/// One rank's queue pairs on one device, and the channel that reports their completions. Not
/// thread-safe: used with the engine's progress lock held. Must outlive its pairs.
class Station {
 public:
  /// Opens the device and checks its port. Throws VerbsError, or Error if the port is not active.
  Station(const std::shared_ptr<Verbs>& verbs, const std::string& device, int port);
  ~Station();
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  VerbsDevice& device() { return *device_; }
  const VerbsDevice& device() const { return *device_; }
  const Port& port() const { return port_; }
  /// The current addresses of the port, which may change at any time.
  std::vector<Gid> gids() const { return device_->context().gids(port_.number); }

  /// Makes a queue pair for a new link. Throws an Error if the device has failed or refuses.
  PairAtStation make_pair(Service service, const LinkOf& link);
  /// Takes over a pair that its link no longer uses, and destroys it once its last messages have
  /// been sent.
  void retire(PairAtStation pair);

  /// Processes device events and timers. Also polls all pairs at intervals of kPollAgain: a link
  /// that is not in use does not poll its pair, although the peer may wait for an answer, or the
  /// last send may have failed.
  void look(Clock::time_point now);
  /// Returns the links whose pair has ended although data that they sent may not have arrived, with
  /// the reason. Returns each link only once.
  std::vector<std::pair<LinkOf, std::string>> take_broken();
  Clock::time_point next_look() const;
  /// Makes the channel's descriptor readable at the next completion. Returns true if the station
  /// has pairs. The caller must then check its links once more, because completions may have
  /// occurred before this call.
  bool arm();
  void disarm() { armed_ = false; }
  /// Appends descriptors for poll(2): device events, and completions if the station is armed or
  /// `always` is true.
  void watch(std::vector<pollfd>& descriptors, bool always = false) const;

  std::size_t pairs() const { return pairs_.size(); }
  /// Called in the child of a fork: closes the child's copies of descriptors.
  void abandon() noexcept;

 private:
  friend struct Leaving;
  struct Departing {
    PairAtStation pair;
    Clock::time_point until;
  };

  void sweep(Clock::time_point now);

  const std::shared_ptr<VerbsDevice> device_;
  Port port_;
  /// Null if the device has no completion channels; its pairs are then polled at intervals of
  /// kBlindNap.
  std::unique_ptr<CompletionChannel> channel_;
  struct Place {
    Pair* pair;
    LinkOf link;
    bool reported = false;  ///< True if take_broken() has returned this link.
  };
  std::vector<Place> pairs_;
  std::vector<Departing> departing_;
  Clock::time_point next_poll_{};
  bool armed_ = false;
};

}  // namespace mccl::transport::rdma
