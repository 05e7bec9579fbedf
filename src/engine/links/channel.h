// The links of one group. For every member and purpose, the group has one or more parallel links,
// each wrapped in a Lane, which frames messages.
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
#include "transport/link.h"

namespace mccl::engine {

/// The connection to one member for one purpose: collectives or messages.
struct Channel {
  std::vector<std::unique_ptr<Lane>> lanes;  ///< Per rail (parallel link); null until connected.
  bool requested = false;
  /// The reason why no more links will be made; empty while links may still be made.
  std::string lost;

  bool connected() const {
    for (const auto& lane : lanes) {
      if (!lane) return false;
    }
    return !lanes.empty();
  }
  /// True if this rail's lane is connected.
  bool has(std::size_t rail) const { return rail < lanes.size() && lanes[rail] != nullptr; }
  /// The rail for the next message: the rail of the idle lane with the fewest bytes in flight, so
  /// that a faster rail carries more messages. A lane is idle if it is sending no message. Empty if
  /// no lane is idle.
  std::optional<std::size_t> free_rail() const;
};

/// All channels of one group. Used under the engine's progress lock.
class Channels {
 public:
  /// A function that requests the links of a channel. Called once per channel.
  using Request = std::function<void(transport::Purpose purpose, GroupRank member)>;
  /// A function that is called after a link has been attached to any channel.
  using Attached = std::function<void()>;

  /// `group` must outlive this object.
  Channels(const Membership& group, std::size_t payload_limit, bool crc, Request request,
           Attached attached);

  const Membership& group() const { return group_; }
  GroupRank rank() const { return group_.rank; }
  int size() const { return group_.size(); }

  /// Returns the channel, after requesting its links if necessary. Throws PeerError if the member
  /// is lost and the channel is not connected.
  Channel& open(transport::Purpose purpose, GroupRank member);
  /// Returns the channel without requesting links.
  Channel& at(transport::Purpose purpose, GroupRank member) {
    return (purpose == transport::Purpose::point_to_point ? point_to_point_ : collective_)[member];
  }

  /// Attaches a link to the rail with index `rail` of the channel, which has `rails` rails. Drops
  /// the link if there is no such rail, if the rail already has a link, or after close(). `bytes`
  /// counts the bytes that the link transfers, and must outlive this object.
  void attach(transport::Purpose purpose, GroupRank member, std::uint8_t rail, int rails,
              std::unique_ptr<transport::Link> link, LinkBytes& bytes);
  /// Records that the member is lost: no more links to it will be made.
  void lose(GroupRank member, const std::string& reason,
            transport::Loss loss = transport::Loss::reported);
  /// Closes all links, because the group has failed. Links attached later are dropped.
  void close();
  bool closed() const { return closed_; }
  /// Closes the channels and returns their links. Needs no memory.
  DepartingLinks take_links() noexcept;
  void for_each_lane(const std::function<void(Lane&)>& visit) const;
  /// Size in bytes of the links' buffers, without memory that is shared between ranks.
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
  /// One empty element per attached link, so that take_links() needs no memory.
  DepartingLinks departures_;
  bool closed_ = false;
};

}  // namespace mccl::engine
