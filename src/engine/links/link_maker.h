// Makes the links of groups. Whoever needs a link says so ("open"). The higher rank of the pair
// makes it, once both have made the group, by the first transport that reaches the other; what the
// two transports tell each other travels as "link". An end that cannot have it says so
// ("declined"), and the two go on to the next transport. So no link ever waits for a group, and
// both ends agree on what it runs through before either uses it.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rank.h"
#include "engine/links/channel.h"
#include "engine/peers/control.h"
#include "engine/peers/peers.h"
#include "transport/transport.h"

namespace mccl::engine {

/// Used under the engine's progress lock.
class LinkMaker {
 public:
  using Transports = std::vector<std::unique_ptr<transport::Transport>>;
  /// The channels of a group that this rank has made; null for others.
  using Find = std::function<Channels*(std::uint64_t group)>;
  /// Is told of every link that came about, by the name of its transport.
  using Made = std::function<void(std::string_view transport)>;

  /// Of two transports that reach a peer, the first is taken if it can be. `patience`: for a link
  /// to come about. All that is referred to outlives it.
  LinkMaker(WorldRank rank, Transports transports, Clock::duration patience, Peers& peers,
            Find find, const Log& log, Made made = {});

  /// How a peer is reached, for people.
  std::string describe(WorldRank peer) const;

  /// As Transport, of the one that reaches the peer first.
  std::vector<std::string> equal_ways(WorldRank peer) const;
  void take_way(WorldRank peer, std::size_t way);

  /// Asks the peer for the links of a channel; this rank makes them when it is the higher one, and
  /// hears that the other needs them too.
  void request(const Membership& group, transport::Purpose purpose, GroupRank member);
  /// What a peer says of links of a group that is known here. Throws CorruptionError.
  void hear(WorldRank peer, Channels& channels, const ControlMessage& message);
  /// A link is offered for a group that is not there any more.
  void refuse(WorldRank peer, const ControlMessage& message);
  /// What is not made yet of the group's links is not wanted any more.
  void forget(std::uint64_t group);

  /// Lets the transports work, and takes the links that have come about. `closed` says whether a
  /// group was here once.
  void progress(const std::function<bool(std::uint64_t group)>& closed);
  /// As Transport, of all.
  std::vector<transport::Transport::LostPeer> take_lost();
  /// Links that stood and broke, as progress() has found out since it was asked last.
  std::vector<transport::LinkEvent> take_broken() { return std::exchange(broken_, {}); }
  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

  /// As Transport.
  bool arm();
  void disarm() {
    for (const auto& transport : transports_) transport->disarm();
  }
  void abandon() noexcept;
  /// Ends all of it: no link comes any more.
  void close();

 private:
  /// Index into `transports_`.
  using Place = std::size_t;

  int rails(WorldRank peer) const;
  void tell(WorldRank peer, ControlKind kind, const transport::LinkKey& key);
  void opened(WorldRank peer, Channels& channels, const transport::LinkKey& key);
  /// `reason`: why those before `from` could not.
  void make(WorldRank peer, Channels& channels, const transport::LinkKey& key, Place from,
            std::string reason);
  /// Why the peer will not have this link by this transport, as it has said before it was tried;
  /// null when it has not.
  const std::string* declined_ahead(WorldRank peer, const transport::LinkKey& key,
                                    Place place) const;
  void decline_awaited(Place place, const std::string& reason);
  void give_up(WorldRank peer, Channels* channels, const transport::LinkKey& key,
               const std::string& reason);
  void go_on(WorldRank peer, Channels& channels, const ControlMessage& message);
  void take(WorldRank peer, Channels& channels, const transport::LinkKey& key, Place place,
            transport::Making made);
  void cancel(WorldRank peer, const transport::LinkKey& key);
  void leave_other(WorldRank peer, const transport::LinkKey& key, Place place);
  void declined(WorldRank peer, Channels& channels, const ControlMessage& message);
  void attach(WorldRank peer, Channels& channels, const transport::LinkKey& key, Place place,
              std::unique_ptr<transport::Link> link);
  void handle(Place place, transport::LinkEvent& event, bool closed);
  Place find_transport(WorldRank peer, const std::string& name) const;
  void warn(WorldRank peer, Place place, const std::string& reason) const;
  /// The next transport from this place on that reaches the peer; their number when there is none.
  Place next(WorldRank peer, Place from) const;

  const WorldRank rank_;
  Transports transports_;
  const Clock::duration patience_;
  Peers& peers_;
  const Find find_;
  const Log& log_;
  const Made told_;
  /// The links in the making, each at the transport that is tried: all that this rank makes, and of
  /// those that a peer makes the ones of which this end has begun and does not stand.
  std::map<std::pair<WorldRank, transport::LinkKey>, Place> making_;
  /// The links that this rank has asked for, that the peers are to make and that do not stand.
  std::set<std::pair<WorldRank, transport::LinkKey>> awaited_;
  /// What peers have declined of the links in `making_` by transports that come after the one that
  /// is tried, with their reasons.
  std::map<std::pair<WorldRank, transport::LinkKey>, std::map<Place, std::string>> declined_ahead_;
  std::uint64_t made_ = 0;  ///< Links that stood.
  std::vector<transport::LinkEvent> broken_;
};

}  // namespace mccl::engine
