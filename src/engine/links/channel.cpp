#include "engine/links/channel.h"

#include <utility>

#include "engine/calls/failure.h"
#include "mccl/error.h"

namespace mccl::engine {

using transport::Purpose;

std::optional<std::size_t> Channel::free_rail() const {
  std::optional<std::size_t> best;
  std::size_t least = 0;
  for (std::size_t rail = 0; rail < lanes.size(); ++rail) {
    if (lanes[rail]->sending()) continue;
    // unsent() may make a system call, so it is not called if there is only one lane.
    const std::size_t on_its_way = lanes.size() == 1 ? 0 : lanes[rail]->link().unsent();
    if (best && on_its_way >= least) continue;
    best = rail;
    least = on_its_way;
  }
  return best;
}

Channels::Channels(const Membership& group, std::size_t payload_limit, bool crc, Request request,
                   Attached attached)
    : group_(group),
      payload_limit_(payload_limit),
      crc_(crc),
      request_(std::move(request)),
      attached_(std::move(attached)),
      collective_(group.members.size()),
      point_to_point_(group.members.size()) {}

Channel& Channels::open(Purpose purpose, GroupRank member) {
  Channel& channel = at(purpose, member);
  if (channel.connected()) return channel;
  if (!channel.lost.empty()) throw PeerError(gone_text(member, channel.lost));
  if (!std::exchange(channel.requested, true)) request_(purpose, member);
  return channel;
}

void Channels::attach(Purpose purpose, GroupRank member, std::uint8_t rail, int rails,
                      std::unique_ptr<transport::Link> link, LinkBytes& bytes) {
  if (closed_) return;
  Channel& channel = at(purpose, member);
  channel.requested = true;
  const auto count = static_cast<std::size_t>(rails);
  if (channel.lanes.size() < count) channel.lanes.resize(count);
  if (rail >= channel.lanes.size() || channel.has(rail)) return;  // no such rail, or it has a link
  if (!channel.lost.empty()) link->lose_peer(transport::Loss::reported);
  departures_.push_back({group_.members[member], nullptr});
  channel.lanes[rail] =
      std::make_unique<Lane>(std::move(link), member, payload_limit_, crc_, bytes);
  attached_();
}

void Channels::lose(GroupRank member, const std::string& reason, transport::Loss loss) {
  for (const Purpose purpose : {Purpose::collective, Purpose::point_to_point}) {
    Channel& channel = at(purpose, member);
    if (channel.lost.empty()) channel.lost = reason;
    for (const auto& lane : channel.lanes) {
      if (lane) lane->link().lose_peer(loss);
    }
  }
}

void Channels::close() {
  closed_ = true;
  for (ByMember* channels : {&collective_, &point_to_point_}) {
    for (Channel& channel : *channels) channel.lanes.clear();
  }
}

DepartingLinks Channels::take_links() noexcept {
  auto next = departures_.begin();
  for_each_lane([&](Lane& lane) {
    next->peer = group_.members[lane.peer()];
    (next++)->link = lane.take_link();
  });
  close();
  return std::exchange(departures_, {});
}

void Channels::for_each_lane(const std::function<void(Lane&)>& visit) const {
  for (const ByMember* channels : {&collective_, &point_to_point_}) {
    for (const Channel& channel : *channels) {
      for (const auto& lane : channel.lanes) {
        if (lane) visit(*lane);
      }
    }
  }
}

std::size_t Channels::buffer_bytes() const {
  std::size_t bytes = 0;
  for_each_lane([&bytes](Lane& lane) { bytes += lane.link().buffer_bytes(); });
  return bytes;
}

}  // namespace mccl::engine
