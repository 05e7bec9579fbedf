#include "rendezvous/meeting/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/settings.h"
#include "mccl/error.h"
#include "rendezvous/cabling/wiring.h"
#include "transport/tcp/kernel_tls.h"
#include "transport/tcp/link.h"

namespace mccl::rendezvous {

namespace {

using transport::LinkEvent;
using transport::Making;

/// Maximum number of rails (parallel connections) of a pair, however many cables the pair has.
constexpr int kMostRails = 64;
int listed_count(const Endpoint& endpoint) {
  return endpoint.listed ? static_cast<int>(endpoint.addresses.size()) : 1;
}

/// True for connections that ranks make for each other's links. Connections through relays go to
/// the relays' own listeners, which do not encrypt them once more.
bool is_for_links(transport::Purpose purpose) {
  using transport::Purpose;
  return purpose == Purpose::control || purpose == Purpose::collective ||
         purpose == Purpose::point_to_point;
}

void warn_of_small_buffers(std::size_t wanted, const Log& log) {
  if (wanted == 0) return;
  const Socket probe = Socket::stream(AF_INET);
  const std::size_t granted = transport::tcp::set_buffer_bytes(probe, wanted);
  if (granted >= wanted) return;
  log.warn(
      "the system grants socket buffers of {} bytes instead of the requested {} bytes; raise "
      "net.core.rmem_max and net.core.wmem_max (Linux) or kern.ipc.maxsockbuf (macOS)",
      granted, wanted);
}

void warn_of_congestion_control(const std::string& wanted, const Log& log) {
  if (transport::tcp::use_congestion_control(Socket::stream(AF_INET), wanted)) return;
  log.warn(
      "MCCL_CONGESTION_CONTROL: the system offers no \"{}\" to this process; links use the "
      "system's default (on Linux, net.ipv4.tcp_available_congestion_control and "
      "tcp_allowed_congestion_control list the choices)",
      wanted);
}

}  // namespace

Mesh::Mesh(MeshOptions options)
    : options_(std::move(options)),
      self_{.rank = options_.rank,
            .size = options_.size,
            .job_key = options_.job_key,
            .agreement = agreement_of(options_.config),
            .encryption = transport::tcp::Encryption::of(options_.config)},
      outbox_(std::make_shared<transport::tcp::Outbox>(
          transport::tcp::CipherThreads::count_for(options_.ranks_per_core))),
      interfaces_(list_interfaces()) {
  if (self_.encryption && self_.encryption->kernel_tls() == transport::tcp::KernelTls::always &&
      !transport::tcp::kernel_offers_tls()) {
    options_.log.warn(
        "MCCL_KERNEL_TLS is on, but this host's kernel cannot encrypt, so MCCL encrypts itself: "
        "Linux 6.14 or later is needed, with the module tls (modprobe tls)");
  }
  Wiring* const wiring = options_.wiring.get();
  if (wiring) {  // Listen at this rank's ends of cables, which the hostfile may not list.
    options_.config.listen_addr = fmt::format("{}", fmt::join(wiring->own_ends(), ","));
    options_.config.ifname.clear();
    options_.config.port_base = 0;
    options_.reach = Reach::any_host;
  }
  BoundListeners binding =
      bind_listeners(options_.config, options_.rank, options_.reach, interfaces_, options_.log);
  endpoint_ = std::move(binding.endpoint);
  // With cables, the number of parallel connections (rails) does not depend on listed addresses.
  if (wiring) endpoint_.listed = false;
  warn_of_small_buffers(socket_buffer_bytes_of(options_.config), options_.log);
  warn_of_congestion_control(options_.config.congestion_control, options_.log);
  if (wiring) binding.listeners.push_back(wiring->inlet(Destination::links));
  acceptor_.emplace(std::move(binding.listeners), self_, options_.log, options_.on_refused);
  make_repairs();
}

int Mesh::rails_of(int peer) const {
  if (!options_.wiring) return std::max(listed_count(endpoint_), listed_count(endpoint_of(peer)));
  const auto cables = static_cast<int>(options_.wiring->ends(peer).size());
  return std::clamp(cables, 1, kMostRails);
}

int Mesh::relay_to(int peer) const {
  if (!options_.wiring || options_.wiring->cabling().joins(options_.rank, peer)) return -1;
  return options_.wiring->cabling().next(options_.rank, peer);
}

std::vector<Candidate> Mesh::candidates_of(int peer, std::uint8_t rail) const {
  return candidates_for(endpoint_of(peer), endpoint_, {rail, rails_of(peer)}, interfaces_);
}

/// Returns this rank's address on a rail (parallel connection): on the rail's cable, else the
/// rail's listed address, else the address on the control connection; empty if none is known.
std::optional<Address> Mesh::own_end(int peer, int rail) const {
  const auto index = static_cast<std::size_t>(rail);
  if (options_.wiring && relay_to(peer) < 0) {
    const std::vector<CableEnds>& ends = options_.wiring->ends(peer);
    return ends.empty() ? std::nullopt : std::optional(ends[index % ends.size()].here);
  }
  const std::vector<std::string>& listed = endpoint_.addresses;
  if (endpoint_.listed) return Address::parse_numeric(listed[index % listed.size()], 0);
  const auto found = own_ends_.find(peer);
  return found == own_ends_.end() ? std::nullopt : std::optional(found->second);
}

/// Returns the published addresses of the peer, and the other ends of this rank's cables to it.
std::vector<Address> Mesh::addresses_of(int peer) const {
  std::vector<Address> found;
  for (const std::string& text : endpoint_of(peer).addresses) {
    // The scope of a link-local address is meaningful only on its own host, so it is removed.
    const std::string host = text.substr(0, text.find('%'));
    if (const auto address = Address::parse_numeric(host, 0)) found.push_back(*address);
  }
  if (!options_.wiring) return found;
  for (const CableEnds& end : options_.wiring->ends(peer)) found.push_back(end.there);
  return found;
}

void Mesh::set_endpoints(std::vector<Endpoint> endpoints) {
  std::ranges::sort(endpoints, {}, &Endpoint::rank);
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i].rank != static_cast<int>(i)) {
      throw InvalidArgument(
          fmt::format("rank {} was given no endpoint of rank {}", options_.rank, i));
    }
  }
  endpoints_ = std::move(endpoints);
}

std::map<int, int> Mesh::relayed() const {
  std::map<int, int> found;
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank) continue;
    if (const int relay = relay_to(peer); relay >= 0) found[peer] = relay;
  }
  return found;
}

/// True if connections to the peer use the cable. A relayed connection follows the path chosen by
/// its dialer, which is the higher rank. Between two neighbours on that path, the connection uses
/// their first cable.
bool Mesh::goes_along(const Cable& cable, int peer) const {
  const Cabling& cabling = options_.wiring->cabling();
  const auto joins = [&cable](int x, int y) {
    return std::min(x, y) == cable.a && std::max(x, y) == cable.b;
  };
  if (relay_to(peer) < 0) return joins(options_.rank, peer);
  if (cabling.between(cable.a, cable.b).front() != cable) return false;
  const std::vector<int> way =
      cabling.way(std::max(options_.rank, peer), std::min(options_.rank, peer));
  for (std::size_t i = 0; i + 1 < way.size(); ++i) {
    if (joins(way[i], way[i + 1])) return true;
  }
  return false;
}

std::vector<transport::Transport::LostPeer> Mesh::take_lost() {
  if (!options_.wiring) return {};
  std::vector<LostPeer> lost;
  for (const auto& [cable, why] : options_.wiring->take_cut()) {
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer == options_.rank || !goes_along(cable, peer)) continue;
      lost.push_back(
          {WorldRank(peer), fmt::format("its connections passed through {}, which failed: {}",
                                        text_of(cable), why)});
    }
  }
  return lost;
}

std::string Mesh::describe(WorldRank peer) const {
  if (const int relay = relay_to(peer.number()); relay >= 0)
    return fmt::format("{}, through rank {}", kind(), relay);
  const int rails = rails_of(peer.number());
  std::string text = fmt::format("{}, {} link{}", kind(), rails, rails == 1 ? "" : "s");
  std::set<std::string> named;
  for (int rail = 0; rail < rails; ++rail) {
    const std::optional<Address> end = own_end(peer.number(), rail);
    const InterfaceAddress* through = end ? find_interface(interfaces_, *end) : nullptr;
    if (through && named.insert(through->name).second) text += ", " + through->text();
  }
  return text;
}

std::vector<std::string> Mesh::equal_ways(WorldRank peer) const {
  std::vector<std::string> ways;
  if (options_.wiring || rails_of(peer.number()) > 1) return {""};
  for (const Candidate& each : candidates_of(peer.number(), 0)) {
    if (ways.empty() || each.equals_first)
      ways.push_back(fmt::format("{}, to {}", each.interface, each.to.host()));
  }
  return ways;
}

Making Mesh::hear(WorldRank peer, const LinkKey&, std::span<const std::byte>) {
  throw CorruptionError(
      fmt::format("rank {} sent set-up data for a tcp link, but tcp links need none", peer));
}

void Mesh::cancel(WorldRank peer, const LinkKey& key) {
  dials_.remove_if(
      [&](const Dial& dial) { return dial.peer() == peer.number() && dial.key() == key; });
}

void Mesh::everyone_is_here() {
  are_meeting_ = false;
  std::vector<Address> addresses;
  for (const Endpoint& each : endpoints_) {
    if (each.rank == options_.rank) continue;
    std::ranges::copy(addresses_of(each.rank), std::back_inserter(addresses));
  }
  acceptor_->everyone_is_here(addresses, Clock::now());
  if (repairs_) repairs_->start();
}

void Mesh::watch(std::vector<pollfd>& descriptors) const {
  acceptor_->watch(descriptors);
  outbox_->watch(descriptors);
  for (const Dial& dial : dials_) dial.watch(descriptors);
  if (repairs_) repairs_->watch(descriptors);
}

Clock::time_point Mesh::next_deadline() const {
  if (outbox_->has_unwatched()) return Clock::time_point::min();
  Clock::time_point next = acceptor_->next_deadline();
  for (const Dial& dial : dials_) next = std::min(next, dial.next_deadline());
  return repairs_ ? std::min(next, repairs_->next_deadline()) : next;
}

void Mesh::progress(std::vector<LinkEvent>& events) {
  const Clock::time_point now = Clock::now();
  const auto report = [&](LinkEvent event) {
    if (are_meeting_ || event.key.purpose != Purpose::control) events.push_back(std::move(event));
  };
  outbox_->flush();
  std::vector<Newcomer> newcomers;
  acceptor_->advance(now, newcomers);
  for (Newcomer& each : newcomers) {
    if (each.socket && each.key.purpose == Purpose::repair) {
      if (repairs_) repairs_->accept(std::move(each));
      continue;
    }
    if (each.socket && !is_for_links(each.key.purpose)) {
      acceptor_->refuse(
          each, LogLevel::warn,
          fmt::format("rank {} asks for a connection that only relays accept", each.peer), now);
      continue;
    }
    report(each.socket
               ? established(each.peer, each.key, std::move(each.socket), false, each.link_number)
               : LinkEvent{WorldRank(each.peer), each.key, nullptr, each.reason});
  }
  dials_.remove_if([&](Dial& dial) {
    const bool has_ended = dial.advance(now);
    if (has_ended) report(result_of(dial));
    return has_ended;
  });
  if (repairs_) repairs_->progress(now);
}

void Mesh::abandon() noexcept {
  acceptor_->close();
  dials_.clear();
  if (repairs_) repairs_->stop();
}

}  // namespace mccl::rendezvous
