#include "rendezvous/connections/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::rendezvous {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Endpoint, rank, host, port, addresses, listed, host_name)

namespace {

using transport::tcp::Medium;

enum class Distance { same_subnet, routed, doubtful, unreachable };

/// An address of the peer and the interface that leads to it.
struct AddressRoute {
  Address to;
  Distance distance = Distance::unreachable;
  Medium through;
  std::string interface;
  bool link_local = false;
};

/// Finds the interface that leads to an address, and its Distance. If the peer is on another host,
/// a loopback address is Distance::doubtful. So is an address that this host has as well, because
/// many hosts use the same addresses for bridges.
AddressRoute way_to(const Address& address, bool same_host, const Interfaces& interfaces,
                    const RouteSource& route) {
  AddressRoute way;
  way.to = address;
  way.link_local = address.is_link_local();
  const auto source = route(address);
  if (!source) return way;
  if (const InterfaceAddress* through = find_interface(interfaces, *source)) {
    way.through = through->medium;
    way.interface = through->name;
  }
  const bool near = std::ranges::any_of(interfaces, [&](const InterfaceAddress& each) {
    return each.up && !each.loopback && each.reaches(address);
  });
  way.distance = near ? Distance::same_subnet : Distance::routed;
  if (!same_host && (find_interface(interfaces, address) != nullptr || address.is_loopback()))
    way.distance = Distance::doubtful;
  return way;
}

/// True if `a` is preferred to `b`: smaller distance, then better medium, then a configured address
/// rather than a link-local one.
bool is_before(const AddressRoute& a, const AddressRoute& b) {
  if (a.distance != b.distance) return a.distance < b.distance;
  if (is_better(a.through, b.through)) return true;
  if (is_better(b.through, a.through)) return false;
  return a.link_local < b.link_local;
}

/// Parses a published address and appends it to `to`. A link-local address, whose scope names an
/// interface of the peer, is appended once per interface of this host that may lead to it, or only
/// with the interface named `only`.
void append_parsed(std::vector<Address>& to, const std::string& text, std::uint16_t port,
                   const Interfaces& interfaces, std::string_view only = {}) {
  const std::size_t percent = std::min(text.find('%'), text.size());
  const std::string number = text.substr(0, percent);
  const std::string scope = text.substr(std::min(percent + 1, text.size()));
  const auto bare = Address::parse_numeric(number, port);
  if (!bare) return;
  if (bare->family() != AF_INET6 || !bare->is_link_local()) {
    to.push_back(*bare);
    return;
  }
  for (const InterfaceAddress& each : interfaces) {
    if (!each.up || each.address.family() != AF_INET6 || !each.address.is_link_local()) continue;
    if (only.empty()) {
      // Skip software interfaces, of which a host with containers has one per container.
      if (each.medium.kind == Medium::Kind::software && each.name != scope) continue;
    } else if (each.name != only) {
      continue;
    }
    if (const auto scoped = Address::parse_numeric(number + "%" + each.name, port))
      to.push_back(*scoped);
  }
}

/// Returns the path of one rail, from the rail's listed address of this rank to the rail's listed
/// address of the peer. `best` replaces the peer's address if the peer lists none, or if the
/// interface of the rail cannot lead to it.
Candidate path_of_rail(const Endpoint& peer, const Endpoint& self, std::size_t rail,
                       const Interfaces& interfaces, const Address& best) {
  Candidate path;
  if (self.listed)
    path.from = Address::parse_numeric(self.addresses[rail % self.addresses.size()], 0);
  std::vector<Address> to;
  if (peer.listed) {
    const InterfaceAddress* own = path.from ? find_interface(interfaces, *path.from) : nullptr;
    append_parsed(to, peer.addresses[rail % peer.addresses.size()], peer.port, interfaces,
                  own ? own->name : "");
  }
  path.to = to.empty() ? best : to.front();
  if (path.from && path.from->family() != path.to.family()) path.from.reset();
  return path;
}

/// True if both routes lead to the peer, through different interfaces, and neither is better.
bool are_equal(const AddressRoute& a, const AddressRoute& b) {
  return !a.interface.empty() && !b.interface.empty() && a.interface != b.interface &&
         a.distance < Distance::doubtful && !is_before(a, b) && !is_before(b, a);
}

constexpr std::size_t kMaxAddresses = 64;
constexpr std::size_t kMaxFieldBytes = 256;
constexpr std::size_t kMaxTextBytes = 32 * 1024;

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= kMaxFieldBytes &&
         std::ranges::all_of(text, [](char c) { return c >= '!' && c <= '~'; });
}

/// True if the text is a numeric address. A scope id (after '%') has a meaning only on the other
/// host, so its value is not checked.
bool is_numeric_address(std::string_view text) {
  const std::size_t percent = text.find('%');
  const bool may_have_scope = text.find(':') < percent && percent + 1 < text.size();
  return is_word(text) && is_ip_address(text.substr(0, percent)) &&
         (percent == text.npos || may_have_scope);
}

/// Returns the first fault of an endpoint; empty if there is none.
std::string fault_of(const Endpoint& endpoint) {
  if (endpoint.rank < 0) return fmt::format("rank {} is negative", endpoint.rank);
  if (!is_word(endpoint.host)) return "the host identity is not a printable word";
  if (!is_word(endpoint.host_name)) return "the host's name is not a printable word";
  if (endpoint.port == 0) return "the port is 0";
  if (endpoint.addresses.empty() || endpoint.addresses.size() > kMaxAddresses)
    return fmt::format("it has {} addresses, expected 1 to {}", endpoint.addresses.size(),
                       kMaxAddresses);
  for (const std::string& address : endpoint.addresses) {
    if (!is_numeric_address(address))
      return fmt::format("\"{}\" is not a numeric address", address.substr(0, kMaxFieldBytes));
  }
  return {};
}

[[noreturn]] void refuse(const std::string& why) {
  throw InvalidArgument(
      fmt::format("the store holds an invalid endpoint: {}; is the store shared with another "
                  "program, or does a rank run another version of MCCL?",
                  why));
}

}  // namespace

std::vector<Address> loopbacks(std::uint16_t port, const Interfaces& interfaces) {
  std::vector<Address> found;
  for (const char* text : {"127.0.0.1", "::1"}) {
    const Address address = *Address::parse_numeric(text, port);
    const InterfaceAddress* const own = find_interface(interfaces, address);
    if (own != nullptr && own->up) found.push_back(address);
  }
  return found;
}

std::string Candidate::text() const {
  return from ? fmt::format("{} from {}", to.text(), from->host()) : to.text();
}

std::vector<Candidate> candidates_for(const Endpoint& peer, const Endpoint& self, RailOfPair rail,
                                      const Interfaces& interfaces, const RouteSource& route) {
  const bool same_host = peer.host == self.host;
  std::vector<Address> published;
  for (const std::string& text : peer.addresses)
    append_parsed(published, text, peer.port, interfaces);
  std::vector<AddressRoute> ordered;
  ordered.reserve(published.size());
  for (const Address& address : published)
    ordered.push_back(way_to(address, same_host, interfaces, route));
  std::ranges::stable_sort(ordered, is_before);

  std::vector<Candidate> candidates;
  if (rail.count > 1 && !ordered.empty()) {
    candidates.push_back(path_of_rail(peer, self, static_cast<std::size_t>(rail.index), interfaces,
                                      ordered.front().to));
  } else if (same_host && !peer.listed) {
    for (const Address& address : loopbacks(peer.port, interfaces))
      candidates.push_back({address, {}, {}});
  }
  const bool free = candidates.empty() && !same_host;
  std::set<std::string> through;
  for (const AddressRoute& way : ordered) {
    const bool is_known = std::ranges::any_of(
        candidates, [&](const Candidate& each) { return each.to == way.to && !each.from; });
    if (is_known) continue;
    Candidate& candidate = candidates.emplace_back();
    candidate.to = way.to;
    candidate.interface = way.interface;
    const bool is_new = through.insert(way.interface).second;
    candidate.equals_first = free && is_new && are_equal(ordered.front(), way);
  }
  std::stable_partition(candidates.begin() + std::min<std::ptrdiff_t>(1, std::ssize(candidates)),
                        candidates.end(), [](const Candidate& each) { return each.equals_first; });
  return candidates;
}

std::string serialise(const Endpoint& endpoint) {
  if (const std::string fault = fault_of(endpoint); !fault.empty())
    throw InvalidArgument("cannot publish an endpoint: " + fault);
  return json(endpoint).dump();
}

Endpoint parse_endpoint(std::string_view text) {
  if (text.size() > kMaxTextBytes) refuse(fmt::format("it has {} bytes", text.size()));
  Endpoint endpoint;
  try {
    const json fields = json::parse(text);
    // Only the conversion of an integer has a defined result for every number.
    if (!fields.at("rank").is_number_integer() || !fields.at("port").is_number_integer())
      refuse("its rank or port is not an integer");
    endpoint = fields.get<Endpoint>();
  } catch (const json::exception&) {
    refuse("it is not the JSON of an endpoint");
  }
  if (const std::string fault = fault_of(endpoint); !fault.empty()) refuse(fault);
  // Only the exact text that serialise() writes is accepted, because JSON can contain numbers that
  // are out of range or written in other ways.
  if (serialise(endpoint) != text) refuse("it is not in the canonical form of an endpoint");
  return endpoint;
}

}  // namespace mccl::rendezvous
