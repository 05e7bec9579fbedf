#include "engine/channel.h"

#include <fmt/format.h>

#include <algorithm>

#include "mccl/error.h"

namespace mccl::engine {

using rendezvous::Purpose;

bool Channel::connected() const {
  return !lanes.empty() &&
         std::all_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane != nullptr; });
}

std::optional<std::size_t> Channel::free_rail() const {
  std::optional<std::size_t> best;
  std::size_t least = 0;
  for (std::size_t rail = 0; rail < lanes.size(); ++rail) {
    if (lanes[rail]->sending()) continue;
    // Asking the kernel is not free, and one way needs no choice.
    const std::size_t on_its_way = lanes.size() == 1 ? 0 : lanes[rail]->link().unsent();
    if (best && on_its_way >= least) continue;
    best = rail;
    least = on_its_way;
  }
  return best;
}

Channels::Channels(int rank, int size, std::size_t payload_limit, bool crc, Request request)
    : rank_(rank),
      payload_limit_(payload_limit),
      crc_(crc),
      request_(std::move(request)),
      collective_(static_cast<std::size_t>(size)),
      point_to_point_(static_cast<std::size_t>(size)) {}

Channel& Channels::at(Purpose purpose, int peer) {
  std::vector<Channel>& channels =
      purpose == Purpose::point_to_point ? point_to_point_ : collective_;
  return channels[static_cast<std::size_t>(peer)];
}

Channel& Channels::open(Purpose purpose, int peer) {
  Channel& channel = at(purpose, peer);
  if (channel.connected()) return channel;
  if (!channel.lost.empty()) {
    throw PeerError(fmt::format("rank {} is gone: {}", peer, channel.lost));
  }
  if (!channel.requested) {
    channel.requested = true;
    request_(purpose, peer);
  }
  return channel;
}

void Channels::attach(Purpose purpose, int peer, std::uint8_t rail, std::uint8_t rails,
                      std::unique_ptr<transport::Link> link) {
  Channel& channel = at(purpose, peer);
  channel.requested = true;
  if (channel.lanes.size() < rails) channel.lanes.resize(rails);
  if (rail >= channel.lanes.size() || channel.lanes[rail]) return;  // a second one is not needed
  if (!channel.lost.empty()) link->peer_gone();
  channel.lanes[rail] = std::make_unique<Lane>(std::move(link), peer, payload_limit_, crc_);
}

void Channels::lose(int peer, const std::string& reason, Loss loss) {
  for (const Purpose purpose : {Purpose::collective, Purpose::point_to_point}) {
    Channel& channel = at(purpose, peer);
    if (channel.lost.empty()) channel.lost = reason;
    for (const auto& lane : channel.lanes) {
      if (!lane) continue;
      if (loss == Loss::silence) {
        lane->link().cut();
      } else {
        lane->link().peer_gone();
      }
    }
  }
}

void Channels::close_all() {
  for (std::vector<Channel>* channels : {&collective_, &point_to_point_}) {
    for (Channel& channel : *channels) channel.lanes.clear();
  }
}

std::vector<std::unique_ptr<transport::Link>> Channels::take_links() {
  std::vector<std::unique_ptr<transport::Link>> links;
  for_each_lane([&links](Lane& lane) { links.push_back(lane.take_link()); });
  close_all();
  return links;
}

void Channels::for_each_lane(const std::function<void(Lane&)>& visit) {
  for (std::vector<Channel>* channels : {&collective_, &point_to_point_}) {
    for (Channel& channel : *channels) {
      for (const auto& lane : channel.lanes) {
        if (lane) visit(*lane);
      }
    }
  }
}

}  // namespace mccl::engine
