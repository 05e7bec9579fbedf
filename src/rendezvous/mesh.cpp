#include "rendezvous/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "base/link_profile.h"
#include "mccl/error.h"
#include "rendezvous/accepting.h"
#include "rendezvous/cabling/wiring.h"
#include "rendezvous/candidates.h"
#include "rendezvous/dialing.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/link.h"

namespace mccl::rendezvous {

namespace {

using namespace std::chrono_literals;
using transport::tcp::Address;
using transport::tcp::Interface;
using transport::tcp::Socket;
using transport::tcp::TcpLink;

constexpr Clock::duration kStagger = 250ms;
/// Stagger if a pair has several rails. It is longer, so that a slow start of the peer does not
/// move a rail to another path.
constexpr Clock::duration kRailStagger = 2s;

/// Maximum number of rails of a pair, however many cables it has.
constexpr int kMostRails = 64;
/// Once a relayed connection has ended: time limit for the report of the cause, which comes from
/// the rank that saw it.
constexpr Clock::duration kNewsOnTheWay = 500ms;

/// The system's own time limit for a silent peer, in liveness intervals. It is only a fallback: the
/// engine monitors peers itself, decides after one interval, and gives better reasons.
constexpr double kIntervalsOfSystem = 2;

std::unique_ptr<transport::Link> make_link(Socket socket, const std::string& peer, bool is_relayed,
                                           const transport::LinkKey& key, const Config& config,
                                           const Log& log) {
  (void)transport::tcp::use_congestion_control(socket, config.congestion_control);
  const auto silence = std::chrono::ceil<std::chrono::seconds>(
      std::chrono::duration<double>(kIntervalsOfSystem * config.liveness_interval));
  transport::tcp::bear_silence(socket, silence);
  // A peer always reads its control connection, so unacknowledged bytes on it mean that its host is
  // gone.
  if (key.purpose == transport::Purpose::control) transport::tcp::limit_silence(socket, silence);
  return std::make_unique<TcpLink>(
      std::move(socket), peer,
      transport::tcp::TcpLinkOptions{
          .told_late = is_relayed ? kNewsOnTheWay : Clock::duration(),
          .warn = [log](const std::string& text) { log.warn("{}", text); }});
}

int listed_count(const Endpoint& endpoint) {
  return endpoint.listed ? static_cast<int>(endpoint.addresses.size()) : 1;
}

/// Returns a name such as "control" or "collectives, rail 1, group 1f2e".
std::string purpose_of(const transport::LinkKey& key) {
  switch (key.purpose) {
    case transport::Purpose::control:
      return "control";
    case transport::Purpose::collective:
      return fmt::format("collectives, rail {}, group {:x}", key.rail, key.group);
    case transport::Purpose::point_to_point:
      return fmt::format("messages, rail {}, group {:x}", key.rail, key.group);
    case transport::Purpose::store:
      return "the store";
    case transport::Purpose::cable:
    case transport::Purpose::relay:
      break;
  }
  return "unknown purpose";
}

void warn_of_small_buffers(std::size_t wanted, const Log& log) {
  if (wanted == 0) return;
  const Socket probe = Socket::stream(AF_INET);
  const std::size_t granted = transport::tcp::set_buffer_bytes(probe, wanted);
  if (granted >= wanted) return;
  log.warn(
      "the system grants socket buffers of {} bytes, not the {} wanted; raise "
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

struct Mesh::State {
  explicit State(MeshOptions given);

  Party self() const { return {options.rank, options.size, options.job_key, options.agreement}; }
  const Endpoint& endpoint_of(int peer) const;
  int rails_of(int peer) const;
  /// Returns the relay that connections to the peer go through; -1 if they are direct.
  int relay_to(int peer) const;
  std::string name_of(int peer) const;
  bool goes_along(const Cable& cable, int peer) const;
  void fill_in_wired(DialRequest& request) const;
  std::vector<Candidate> candidates_of(int peer, std::uint8_t rail) const;
  void report(Newcomer& newcomer, std::vector<MeshEvent>& events);
  void report(Dial& dial, std::vector<MeshEvent>& events);
  void note(const MeshEvent& event, bool dialled_here);
  const Address* own_end(int peer, int rail) const;
  std::vector<Address> addresses_of_peers() const;

  MeshOptions options;
  std::vector<Interface> interfaces;
  std::vector<Endpoint> endpoints;  ///< In rank order; set by set_endpoints().
  Endpoint endpoint;
  std::optional<Acceptor> acceptor;
  std::list<Dial> dials;
  std::map<int, Address> own_ends;   ///< Local addresses of control connections, by peer.
  std::map<int, std::size_t> taken;  ///< Selected index into equal_ways(), by peer.
  std::vector<Address> listed;       ///< This rank's listed addresses, one per rail; empty if none.
  std::uint64_t connections = 0;     ///< Number of established connections.
};

Mesh::State::State(MeshOptions given)
    : options(std::move(given)), interfaces(transport::tcp::list_interfaces()) {
  if (options
          .wiring) {  // This rank listens at its ends of cables, which the hostfile may not list.
    options.config.listen_addr = fmt::format("{}", fmt::join(options.wiring->own_ends(), ","));
    options.config.ifname.clear();
    options.config.port_base = 0;
    options.reach = Reach::any_host;
  }
  Binding binding =
      bind_listeners(options.config, options.rank, options.reach, interfaces, options.log);
  endpoint = std::move(binding.endpoint);
  if (options.wiring) endpoint.listed = false;  // rails are determined by the cables instead
  for (const std::string& text : endpoint.listed ? endpoint.addresses : std::vector<std::string>())
    listed.push_back(Address::parse_numeric(text, 0).value_or(Address()));
  warn_of_small_buffers(socket_buffer_bytes_of(options.config), options.log);
  warn_of_congestion_control(options.config.congestion_control, options.log);
  if (options.wiring) binding.listeners.push_back(options.wiring->inlet(Destination::links));
  acceptor.emplace(std::move(binding.listeners), self(), options.log, options.on_refused);
}

const Endpoint& Mesh::State::endpoint_of(int peer) const {
  if (peer < 0 || static_cast<std::size_t>(peer) >= endpoints.size()) {
    throw InvalidArgument(
        fmt::format("rank {} knows the endpoints of {} ranks, not that of rank {}", options.rank,
                    endpoints.size(), peer));
  }
  return endpoints[static_cast<std::size_t>(peer)];
}

int Mesh::State::rails_of(int peer) const {
  if (!options.wiring) return std::max(listed_count(endpoint), listed_count(endpoint_of(peer)));
  const auto cables = static_cast<int>(options.wiring->ends(peer).size());
  return std::clamp(cables, 1, kMostRails);
}

int Mesh::State::relay_to(int peer) const {
  if (!options.wiring || options.wiring->cabling().joins(options.rank, peer)) return -1;
  return options.wiring->cabling().next(options.rank, peer);
}

std::string Mesh::State::name_of(int peer) const {
  const int relay = relay_to(peer);
  return relay < 0 ? fmt::format("rank {}", peer)
                   : fmt::format("rank {} (through rank {})", peer, relay);
}

/// Fills in the candidates of a dial along cables. For a neighbour: the rail's cable first, then
/// the pair's other cables. For another rank: the path through a relay.
void Mesh::State::fill_in_wired(DialRequest& request) const {
  const Wiring& wiring = *options.wiring;
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

std::vector<Candidate> Mesh::State::candidates_of(int peer, std::uint8_t rail) const {
  return candidates_for(endpoint_of(peer), endpoint, {rail, rails_of(peer)}, interfaces);
}

/// Logs connections in the order in which they are established.
void Mesh::State::note(const MeshEvent& event, bool dialled_here) {
  options.log.debug("connection {}, {} rank {} ({}): {}", ++connections,
                    dialled_here ? "to" : "from", event.peer, purpose_of(event.key),
                    event.link->description());
}

/// Returns this rank's address of a rail: its end of the rail's cable, else the rail's listed
/// address, else its address on the control connection; null if none is known.
const Address* Mesh::State::own_end(int peer, int rail) const {
  if (options.wiring && relay_to(peer) < 0) {
    const std::vector<CableEnds>& ends = options.wiring->ends(peer);
    return ends.empty() ? nullptr : &ends[static_cast<std::size_t>(rail) % ends.size()].here;
  }
  if (!listed.empty()) return &listed[static_cast<std::size_t>(rail) % listed.size()];
  const auto found = own_ends.find(peer);
  return found == own_ends.end() ? nullptr : &found->second;
}

/// Returns the published addresses of the peers, and the other ends of this rank's cables.
std::vector<Address> Mesh::State::addresses_of_peers() const {
  std::vector<Address> found;
  for (const Endpoint& each : endpoints) {
    if (each.rank == options.rank) continue;
    for (const std::string& text : each.addresses) {
      // The scope of a link-local address is meaningful only on its own host.
      const std::string host = text.substr(0, text.find('%'));
      if (const auto address = Address::parse_numeric(host, 0)) found.push_back(*address);
    }
    if (!options.wiring) continue;
    for (const CableEnds& end : options.wiring->ends(each.rank)) found.push_back(end.there);
  }
  return found;
}

void Mesh::State::report(Newcomer& newcomer, std::vector<MeshEvent>& events) {
  MeshEvent event;
  event.peer = newcomer.peer;
  event.key = newcomer.key;
  event.reason = std::move(newcomer.reason);
  if (newcomer.socket) {
    if (event.key == transport::LinkKey{}) own_ends[event.peer] = newcomer.socket.local();
    event.link = make_link(std::move(newcomer.socket), name_of(event.peer),
                           relay_to(event.peer) >= 0, event.key, options.config, options.log);
    note(event, false);
  }
  events.push_back(std::move(event));
}

void Mesh::State::report(Dial& dial, std::vector<MeshEvent>& events) {
  MeshEvent event;
  event.peer = dial.peer();
  event.key = dial.key();
  event.reason = dial.reason();
  if (Socket socket = dial.take_socket()) {
    if (rails_of(dial.peer()) > 1 && &dial.winner() != &dial.first_choice()) {
      options.log.warn("rail {} to rank {} uses {} instead of {}: {}", event.key.rail, event.peer,
                       dial.winner().text(), dial.first_choice().text(),
                       dial.first_choice().outcome);
    }
    if (event.key == transport::LinkKey{}) own_ends[event.peer] = socket.local();
    event.link = make_link(std::move(socket), name_of(event.peer), relay_to(event.peer) >= 0,
                           event.key, options.config, options.log);
    note(event, true);
  }
  events.push_back(std::move(event));
}

Mesh::Mesh(MeshOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Mesh::~Mesh() = default;

const Endpoint& Mesh::endpoint() const { return state_->endpoint; }

void Mesh::set_endpoints(std::vector<Endpoint> endpoints) {
  std::sort(endpoints.begin(), endpoints.end(),
            [](const Endpoint& a, const Endpoint& b) { return a.rank < b.rank; });
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i].rank != static_cast<int>(i) || endpoints[i].addresses.empty()) {
      throw InvalidArgument(
          fmt::format("rank {} was given no endpoint of rank {}", state_->options.rank, i));
    }
  }
  if (endpoints.size() != static_cast<std::size_t>(state_->options.size)) {
    throw InvalidArgument(fmt::format("rank {} was given the endpoints of {} ranks, not of {}",
                                      state_->options.rank, endpoints.size(),
                                      state_->options.size));
  }
  state_->endpoints = std::move(endpoints);
}

int Mesh::rails(int peer) const { return state_->rails_of(peer); }

std::map<int, int> Mesh::relayed() const {
  std::map<int, int> found;
  for (int peer = 0; peer < state_->options.size; ++peer) {
    if (peer == state_->options.rank) continue;
    if (const int relay = state_->relay_to(peer); relay >= 0) found[peer] = relay;
  }
  return found;
}

/// True if connections to the peer use the cable. A relayed connection follows the path chosen by
/// its dialer, which is the higher rank. Between two neighbours on that path it uses their first
/// cable.
bool Mesh::State::goes_along(const Cable& cable, int peer) const {
  const Cabling& cabling = options.wiring->cabling();
  const auto joins = [&cable](int x, int y) {
    return std::min(x, y) == cable.a && std::max(x, y) == cable.b;
  };
  if (relay_to(peer) < 0) return joins(options.rank, peer);
  if (cabling.between(cable.a, cable.b).front() != cable) return false;
  const std::vector<int> way =
      cabling.way(std::max(options.rank, peer), std::min(options.rank, peer));
  for (std::size_t i = 0; i + 1 < way.size(); ++i) {
    if (joins(way[i], way[i + 1])) return true;
  }
  return false;
}

std::vector<CutOff> Mesh::take_cut_off() {
  const State& state = *state_;
  if (!state.options.wiring) return {};
  std::vector<CutOff> found;
  for (const auto& [cable, why] : state.options.wiring->take_cut()) {
    for (int peer = 0; peer < state.options.size; ++peer) {
      if (peer != state.options.rank && state.goes_along(cable, peer))
        found.push_back({peer, fmt::format("{}: {}", text_of(cable), why)});
    }
  }
  return found;
}

std::string Mesh::describe(int peer) const {
  if (const int relay = state_->relay_to(peer); relay >= 0)
    return fmt::format("through rank {}", relay);
  const int rails = state_->rails_of(peer);
  std::string text = fmt::format("{} link{}", rails, rails == 1 ? "" : "s");
  std::vector<std::string> named;
  for (int rail = 0; rail < rails; ++rail) {
    const Address* end = state_->own_end(peer, rail);
    const Interface* through = end ? find_interface(state_->interfaces, *end) : nullptr;
    if (!through || std::find(named.begin(), named.end(), through->name) != named.end()) continue;
    named.push_back(through->name);
    text += ", " + through->text();
  }
  return text;
}

std::vector<std::string> Mesh::equal_ways(int peer) const {
  const State& state = *state_;
  std::vector<std::string> ways;
  if (state.options.wiring || state.rails_of(peer) > 1) return {""};
  for (const Candidate& each : state.candidates_of(peer, 0)) {
    if (ways.empty() || each.equals_first)
      ways.push_back(fmt::format("{}, to {}", each.interface, each.to.host()));
  }
  return ways;
}

void Mesh::take_way(int peer, std::size_t way) { state_->taken[peer] = way; }

void Mesh::dial(int peer, transport::LinkKey key, Clock::time_point deadline) {
  State& state = *state_;
  if (peer == state.options.rank) throw InvalidArgument(fmt::format("rank {} dials itself", peer));
  const int count = state.rails_of(peer);
  DialRequest request;
  request.self = state.self();
  request.peer = peer;
  request.key = key;
  request.deadline = deadline;
  if (state.options.wiring) {
    state.fill_in_wired(request);
  } else {
    request.candidates = state.candidates_of(peer, key.rail);
    const auto taken = state.taken.find(peer);
    if (taken != state.taken.end() && taken->second < request.candidates.size()) {
      const auto way = request.candidates.begin() + static_cast<std::ptrdiff_t>(taken->second);
      std::rotate(request.candidates.begin(), way, way + 1);
    }
  }
  request.stagger = count > 1 ? kRailStagger : kStagger;
  request.buffer_bytes = socket_buffer_bytes_of(state.options.config);
  if (state.endpoint_of(peer).host == state.endpoint.host && !request.through)
    request.refused_for = kRefusedFor;
  if (state.options.log.enabled(LogLevel::debug)) {
    std::string ways;
    for (const Candidate& each : request.candidates)
      ways += (ways.empty() ? "" : ", then ") + each.text();
    state.options.log.debug("connects to rank {} ({}) at {}", peer, purpose_of(key), ways);
  }
  state.dials.emplace_back(std::move(request));
}

void Mesh::everyone_is_here() {
  state_->acceptor->everyone_is_here(state_->addresses_of_peers(), Clock::now());
}

std::string Mesh::accepting_trouble() const { return state_->acceptor->trouble(Clock::now()); }

void Mesh::cancel(int peer, transport::LinkKey key) {
  state_->dials.remove_if(
      [&](const Dial& dial) { return dial.peer() == peer && dial.key() == key; });
}

void Mesh::watch(std::vector<pollfd>& descriptors) const {
  state_->acceptor->watch(descriptors);
  for (const Dial& dial : state_->dials) dial.watch(descriptors);
}

Clock::time_point Mesh::next_deadline() const {
  Clock::time_point next = state_->acceptor->next_deadline();
  for (const Dial& dial : state_->dials) next = std::min(next, dial.next_deadline());
  return next;
}

void Mesh::progress(std::vector<MeshEvent>& events) {
  const Clock::time_point now = Clock::now();
  std::vector<Newcomer> newcomers;
  state_->acceptor->advance(now, newcomers);
  for (Newcomer& newcomer : newcomers) state_->report(newcomer, events);
  for (auto dial = state_->dials.begin(); dial != state_->dials.end();) {
    if (dial->advance(now)) {
      state_->report(*dial, events);
      dial = state_->dials.erase(dial);
    } else {
      ++dial;
    }
  }
}

void Mesh::abandon() noexcept {
  state_->acceptor->close();
  state_->dials.clear();
}

}  // namespace mccl::rendezvous
