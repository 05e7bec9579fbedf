// The part of Mesh that dials, and that makes links of connections.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/settings.h"
#include "mccl/error.h"
#include "rendezvous/cabling/wiring.h"
#include "rendezvous/meeting/mesh.h"
#include "transport/tcp/link.h"

namespace mccl::rendezvous {

namespace {

using transport::LinkEvent;
using transport::Making;
using transport::tcp::TcpLink;

/// DialRequest::stagger for a pair with several rails. It is longer than the default, so that a
/// peer that starts slowly does not move a rail to another path.
constexpr Clock::duration kRailStagger = 2s;

/// Delay before the end of a relayed connection is reported, so that its cause is reported first.
constexpr Clock::duration kNewsOnTheWay = 500ms;

/// Time limit of the kernel's TCP for a silent peer, in liveness intervals. It is only a fallback:
/// the engine detects a silent peer after one interval, and reports a better reason.
constexpr double kIntervalsOfSystem = 2;

/// Prepares a connection for a link. `outbox` sends the bytes that wait in an encrypted link.
void prepare(const Socket& socket, const LinkKey& key, const Config& config,
             const std::shared_ptr<transport::tcp::Outbox>& outbox) {
  if (socket.secure()) socket.secure()->use(outbox);
  (void)transport::tcp::use_congestion_control(socket, config.congestion_control);
  const auto silence = std::chrono::ceil<std::chrono::seconds>(
      std::chrono::duration<double>(kIntervalsOfSystem * config.liveness_interval));
  transport::tcp::bear_silence(socket, silence);
  // A peer always reads its control connection, so unacknowledged bytes on that connection mean
  // that the peer's host is gone.
  if (key.purpose == Purpose::control) transport::tcp::limit_silence(socket, silence);
}

/// Returns a name such as "control" or "collectives, rail 1, group 1f2e".
std::string purpose_of(const LinkKey& key) {
  if (key.purpose == Purpose::control) return "control";
  const bool is_collective = key.purpose == Purpose::collective;
  if (!is_collective && key.purpose != Purpose::point_to_point) return "another purpose";
  return fmt::format("{}, rail {}, group {:x}", is_collective ? "collectives" : "messages",
                     key.rail, key.group);
}

}  // namespace

void Mesh::make_repairs() {
  const Clock::duration patience = milliseconds_of(link_retry_of(options_.config));
  if (patience == Clock::duration::zero()) return;
  repairs_ = std::make_shared<Repairs>(RepairOptions{
      .self = self_,
      .patience = patience,
      .socket_buffer_bytes = socket_buffer_bytes_of(options_.config),
      .log = options_.log,
      .listener_of = [this](int peer, const Address& end) { return listener_of(peer, end); },
      .detours = [this](const RepairedLink& about) { return detours_of(about); },
      .fill_in_relay = [this](DialRequest& request) { fill_in_wired(request); },
      .has_ended = [wiring = options_.wiring](int rank) { return wiring->has_ended(rank); },
      .prepare = [config = options_.config, outbox = outbox_](
                     Socket& socket, const LinkKey& key) { prepare(socket, key, config, outbox); },
      .on_repaired = options_.on_repaired});
}

/// Sets the candidates of a dial along cables. A neighbour is dialed along the rail's cable first,
/// then along the pair's other cables; any other rank is dialed through a relay.
void Mesh::fill_in_wired(DialRequest& request) const {
  const Wiring& wiring = *options_.wiring;
  if (relay_to(request.peer) >= 0) {
    Wiring::Way way = wiring.way_to(request.peer, Destination::links);
    request.candidates = std::move(way.candidates);
    request.through = std::move(way.first);
    return;
  }
  const std::vector<CableEnds>& ends = wiring.ends(request.peer);
  const std::uint16_t port = endpoint_of(request.peer).port;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const CableEnds& end = ends[(request.key.rail + i) % ends.size()];
    request.candidates.push_back({end.there.with_port(port), end.here, {}});
  }
}

/// Returns the paths to the peer of a link, except the link's own one.
std::vector<Candidate> Mesh::detours_of(const RepairedLink& about) const {
  std::vector<Candidate> detours;
  for (int rail = 0; rail < rails_of(about.peer); ++rail) {
    DialRequest request{.self = self_, .peer = about.peer, .key = about.key};
    request.key.rail = static_cast<std::uint8_t>(rail);
    if (options_.wiring) {
      fill_in_wired(request);
    } else {
      request.candidates = candidates_of(about.peer, request.key.rail);
    }
    if (rails_of(about.peer) == 1 || request.candidates.empty()) continue;
    Candidate& path = request.candidates.front();
    if (!about.is_own_path(path.from, path.to)) detours.push_back(std::move(path));
  }
  return detours;
}

Making Mesh::dial(WorldRank to, const LinkKey& key, Clock::time_point deadline) {
  const int peer = to.number();
  if (peer == options_.rank)
    throw InvalidArgument(fmt::format("rank {} cannot connect to itself", peer));
  DialRequest request{.self = self_, .peer = peer, .key = key, .deadline = deadline};
  if (options_.wiring) {
    fill_in_wired(request);
  } else {
    request.candidates = candidates_of(peer, key.rail);
    const auto taken = taken_.find(peer);
    if (taken != taken_.end() && taken->second < request.candidates.size()) {
      const auto way = request.candidates.begin() + static_cast<std::ptrdiff_t>(taken->second);
      std::rotate(request.candidates.begin(), way, way + 1);
    }
  }
  if (rails_of(peer) > 1) request.stagger = kRailStagger;
  request.buffer_bytes = socket_buffer_bytes_of(options_.config);
  if (endpoint_of(peer).host == endpoint_.host && !request.through)
    request.refused_for = kRefusedFor;
  if (options_.log.enabled(LogLevel::debug)) {
    std::vector<std::string> ways;
    for (const Candidate& each : request.candidates) ways.push_back(each.text());
    options_.log.debug("this rank connects to rank {} ({}) at {}", peer, purpose_of(key),
                       fmt::join(ways, ", then "));
  }
  dials_.emplace_back(std::move(request));
  return {};
}

std::optional<Address> Mesh::listener_of(int peer, const Address& end) const {
  const std::vector<Address> published = addresses_of(peer);
  const bool is_published =
      std::ranges::any_of(published, [&](const Address& each) { return each.same_host(end); });
  if (!is_published) return std::nullopt;
  return end.with_port(endpoint_of(peer).port);
}

/// Makes a link from an authenticated connection. Logs the connection with a running number (not
/// `link_number`).
LinkEvent Mesh::established(int peer, const LinkKey& key, Socket socket, bool dialled_here,
                            std::uint64_t link_number) {
  if (key == LinkKey{}) own_ends_[peer] = socket.local();
  prepare(socket, key, options_.config, outbox_);
  const int relay = relay_to(peer);
  const std::string name = relay < 0 ? fmt::format("rank {}", peer)
                                     : fmt::format("rank {} (through rank {})", peer, relay);
  // The address of this end selects the cable or the rail, so a repair must use the same address.
  const bool keeps_end = options_.wiring || endpoint_.listed;
  const std::optional<Address> here =
      keeps_end ? std::optional(socket.local().with_port(0)) : std::nullopt;
  const RepairedLink about{peer, key, link_number, socket.remote(), dialled_here, here, relay};
  const bool is_inside_host = socket.remote().same_host(socket.local()) ||
                              find_interface(interfaces_, socket.remote()) != nullptr;
  auto link = std::make_unique<TcpLink>(
      std::move(socket), name,
      transport::tcp::TcpLinkOptions{
          .report_end_after = relay < 0 ? Clock::duration() : kNewsOnTheWay,
          .warn = [log = options_.log](const std::string& text) { log.warn("{}", text); },
          .repairer = repairs_,
          .is_inside_host = relay < 0 && is_inside_host,
          .is_relayed = relay >= 0,
          .peer_host = host_of(peer)});
  if (repairs_) repairs_->add(*link, about);
  options_.log.debug("connection {}, {} rank {} ({}): {}", ++connections_,
                     dialled_here ? "to" : "from", peer, purpose_of(key), link->description());
  return {WorldRank(peer), key, std::move(link), {}};
}

LinkEvent Mesh::result_of(Dial& dial) {
  Socket socket = dial.take_socket();
  if (!socket) return {WorldRank(dial.peer()), dial.key(), nullptr, dial.reason()};
  if (rails_of(dial.peer()) > 1 && &dial.winner() != &dial.first_choice()) {
    options_.log.warn(
        "link {} to rank {} uses {}, because {} failed: {}; several links may share one path",
        dial.key().rail, dial.peer(), dial.winner().text(), dial.first_choice().text(),
        dial.first_choice().outcome);
  }
  return established(dial.peer(), dial.key(), std::move(socket), true, dial.link_number());
}

}  // namespace mccl::rendezvous
