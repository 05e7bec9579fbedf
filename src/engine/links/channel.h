// The links of one group: for every member and purpose, the parallel lanes that carry its messages.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rank.h"
#include "engine/calls/membership.h"
#include "engine/links/departing.h"
#include "engine/links/lane.h"
#include "transport/link_key.h"

namespace mccl::engine {

/// The way to one member for one purpose.
struct Channel {
  std::vector<std::unique_ptr<Lane>> lanes;  ///< By rail; null until connected.
  bool requested = false;
  std::string lost;  ///< Why there will be no more links; empty while there may be.

  bool connected() const;
  /// Whether this rail's lane stands.
  bool has(std::size_t rail) const { return rail < lanes.size() && lanes[rail] != nullptr; }
  /// Where the next message goes: of the lanes that have none to send, the one with least on its
  /// way, so that each carries what its path can. Nothing when all are busy.
  std::optional<std::size_t> free_rail() const;
};

/// Used under the engine's progress lock.
class Channels {
 public:
  /// Asks for the links of a channel, once.
  using Request = std::function<void(transport::Purpose purpose, GroupRank member)>;
  /// Is told when a link has come.
  using Attached = std::function<void()>;

  /// `group` outlives it.
  Channels(const Membership& group, std::size_t payload_limit, bool crc, Request request,
           Attached attached);

  const Membership& group() const { return group_; }
  GroupRank rank() const { return group_.rank; }
  int size() const { return group_.size(); }

  /// The channel, its links asked for. Throws PeerError when the member is lost and it was never
  /// connected.
  Channel& open(transport::Purpose purpose, GroupRank member);
  /// The same without asking for links.
  Channel& at(transport::Purpose purpose, GroupRank member);

  /// Takes a link of a rail, of which there are `rails`, unless it has one already, or the group
  /// needs none any more.
  void attach(transport::Purpose purpose, GroupRank member, std::uint8_t rail, int rails,
              std::unique_ptr<transport::Link> link);
  /// No more links to this member.
  void lose(GroupRank member, const std::string& reason,
            transport::Loss loss = transport::Loss::told);
  /// The group has failed: all links end, and it takes none any more.
  void close();
  bool closed() const { return closed_; }
  /// The same, but the links are returned. Needs no memory.
  DepartingLinks take_links() noexcept;
  void for_each_lane(const std::function<void(Lane&)>& visit) const;
  /// Memory that the links take of their own.
  std::size_t buffer_bytes() const;

 private:
  using ByMember = ByRank<GroupRank, Channel>;

  const Membership& group_;
  const std::size_t payload_limit_;
  const bool crc_;
  const Request request_;
  const Attached attached_;
  ByMember collective_;
  ByMember point_to_point_;
  DepartingLinks departures_;  ///< An empty element for each link that has come, for take_links().
  bool closed_ = false;
};

}  // namespace mccl::engine
