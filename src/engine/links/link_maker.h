// Makes the links of groups. A rank that needs a link sends the message "open" to the peer. Once
// both ranks have made the group, the higher rank of the pair makes the link, with the first
// transport that reaches the peer. The transports of the two ranks exchange set-up data in "link"
// messages. A rank that cannot set up the link sends "declined", and both ranks try the next
// transport. So a link is made only when both ranks have the group, and both ranks agree on the
// transport before either uses the link.
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
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rank.h"
#include "base/rare_line.h"
#include "engine/links/channel.h"
#include "engine/peers/control.h"
#include "engine/peers/peers.h"
#include "transport/transport.h"

namespace mccl::engine {

/// Names the links between this rank and a peer over one transport and one rail (index of a
/// parallel link). The links of different groups share the name.
struct LinkName {
  WorldRank peer;
  std::uint8_t rail = 0;
  std::string_view transport = {};  ///< Points to a text that is never freed.

  friend bool operator<(const LinkName& a, const LinkName& b) {
    return std::tie(a.peer, a.rail, a.transport) < std::tie(b.peer, b.rail, b.transport);
  }
};

/// Makes and closes the links of all groups on this rank, over all transports. Used under the
/// engine's progress lock.
class LinkMaker {
 public:
  using Transports = std::vector<std::unique_ptr<transport::Transport>>;
  /// Returns the channels of a group that this rank has made; null for any other group.
  using Find = std::function<Channels*(std::uint64_t group)>;
  /// Called with the transport's name for every link that was made.
  using Made = std::function<void(std::string_view transport)>;

  /// `transports`: in order of preference. `patience`: maximum time for making a link. Everything
  /// passed by reference must outlive this object.
  LinkMaker(WorldRank rank, Transports transports, Clock::duration patience, Peers& peers,
            Find find, const Log& log, Made made = {});

  /// Describes the first transport that reaches a peer, for use in log messages.
  std::string describe(WorldRank peer) const;
  /// Name of the first transport that reaches a peer; empty if none does.
  std::string transport_to(WorldRank peer) const;

  /// Byte counts of all links made so far, including the links of groups that have ended.
  const std::map<LinkName, LinkBytes>& bytes() const { return bytes_; }

  /// List the equally good paths (ways) to the peer, and select one for later links. See Transport;
  /// the first transport that reaches the peer answers.
  std::vector<std::string> equal_ways(WorldRank peer) const;
  void take_way(WorldRank peer, std::size_t way);

  /// Requests the links of a channel from the peer. If the peer is the higher rank, it makes the
  /// links when the request arrives. Otherwise this rank makes each link when the peer's own
  /// request ("open") arrives.
  void request(const Membership& group, transport::Purpose purpose, GroupRank member);
  /// Handles a peer's message about links of a group, which this rank must have made already.
  /// Throws CorruptionError for a message that no correct peer sends.
  void hear(WorldRank peer, Channels& channels, const ControlMessage& message);
  /// Refuses a peer's offer of a link for a group that does not exist on this rank.
  void refuse(WorldRank peer, const ControlMessage& message);
  /// Cancels the links of the group that are still being made, and sends `closed` to their peers,
  /// which would otherwise wait for these links.
  void forget(std::uint64_t group);

  /// Called repeatedly while nothing arrives from the peer; see Transport::suspect().
  void suspect(WorldRank peer) {
    for (const auto& transport : transports_) transport->suspect(peer);
  }
  /// Sends the receipts that are due; see transport::Receipt.
  void send_receipts();
  /// Handles a receipt of the peer (ControlKind::received).
  void hear_receipt(WorldRank peer, const ControlMessage& message) {
    for (const auto& transport : transports_)
      transport->hear({peer, message.key, message.call.sequence});
  }
  /// Lets the transports make progress, and attaches finished links. `closed` returns true for a
  /// group that this rank has closed.
  void progress(const std::function<bool(std::uint64_t group)>& closed);
  /// Returns the peers that the transports have found unreachable since the last call; see
  /// Transport.
  std::vector<transport::Transport::LostPeer> take_lost();
  /// Returns the established links that progress() has found broken since the last call.
  std::vector<transport::LinkEvent> take_broken() { return std::exchange(broken_, {}); }
  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

  /// Arms all transports before the driver sleeps, so that activity on links without a descriptor,
  /// which poll(2) cannot watch, ends the sleep. Returns true if such links may exist; the caller
  /// must then check its links once more before it sleeps. disarm() is called when the sleep has
  /// ended.
  bool arm();
  void disarm() {
    for (const auto& transport : transports_) transport->disarm();
  }
  /// Called in the child of a fork: closes the child's copies of descriptors.
  void abandon() noexcept {
    for (const auto& transport : transports_) transport->abandon();
  }
  /// Destroys the transports, so that no more links are made.
  void close();

 private:
  /// Index into `transports_`.
  using Place = std::size_t;

  int rails(WorldRank peer) const;
  void send(WorldRank peer, ControlKind kind, const transport::LinkKey& key);
  void decline(WorldRank peer, const transport::LinkKey& key, std::string_view transport,
               const std::string& reason);
  void opened(WorldRank peer, Channels& channels, const transport::LinkKey& key);
  /// Tries the transports at index `from` and above. `reason`: why the transports before `from`
  /// failed.
  void make(WorldRank peer, Channels& channels, const transport::LinkKey& key, Place from,
            std::string reason);
  /// Returns the peer's reason from `declined_ahead_`; null if the peer has not declined this
  /// transport for this link.
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
  void warn(WorldRank peer, Place place, const std::string& reason);
  /// Returns the index of the first transport at or after `from` that reaches the peer. Returns the
  /// number of transports if none of them reaches the peer.
  Place next(WorldRank peer, Place from) const;

  const WorldRank rank_;
  Transports transports_;
  const Clock::duration patience_;
  Peers& peers_;
  const Find find_;
  const Log& log_;
  std::map<std::pair<WorldRank, Place>, RareLine> warnings_;
  const Made on_made_;
  /// The transport that is being tried for each link that is not established yet. Contains all
  /// links that this rank makes. Also contains a link that a peer makes, once this rank's transport
  /// has begun its part.
  std::map<std::pair<WorldRank, transport::LinkKey>, Place> making_;
  /// Links that this rank has requested, which the peers must make and which are not established
  /// yet.
  std::set<std::pair<WorldRank, transport::LinkKey>> awaited_;
  /// Transports that the peer declined before this rank tried them, with the peer's reasons. Keyed
  /// by links in `making_`.
  std::map<std::pair<WorldRank, transport::LinkKey>, std::map<Place, std::string>> declined_ahead_;
  std::uint64_t made_ = 0;  ///< Number of links established so far.
  std::map<LinkName, LinkBytes> bytes_;
  std::vector<transport::LinkEvent> broken_;
};

}  // namespace mccl::engine
