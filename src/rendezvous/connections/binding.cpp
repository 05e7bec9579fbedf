#include "rendezvous/connections/binding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/rank_path.h"
#include "base/settings.h"
#include "mccl/error.h"
#include "rendezvous/connections/wire.h"

namespace mccl::rendezvous {

namespace {

using transport::tcp::Medium;

/// Returns this host's name as a word for an Endpoint.
std::string host_name_as_word() {
  std::string name = host_name();
  std::ranges::replace_if(
      name, [](char c) { return c < '!' || c > '~'; }, '-');
  return name.empty() ? "unnamed" : name;
}

constexpr std::size_t kMaxPublished = 32;
constexpr int kEphemeralTries = 16;

/// The addresses that this rank binds, and the addresses that it publishes.
struct OwnAddresses {
  std::vector<Address> bound;  ///< If empty, the wildcard address is bound.
  std::vector<std::string> published;
  bool listed = false;
};

/// Returns the items of a comma-separated list. Removes all blanks.
std::vector<std::string> split(std::string list) {
  std::erase_if(list, [](char c) { return c == ' ' || c == '\t'; });
  std::vector<std::string> items;
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view item = next_part(rest, ',');
    if (!item.empty()) items.emplace_back(item);
  }
  return items;
}

std::string names_of(const Interfaces& interfaces) {
  std::vector<std::string> texts;
  std::set<std::string> seen;
  for (const InterfaceAddress& each : interfaces) {
    if (!seen.insert(each.name).second) continue;
    texts.push_back(
        fmt::format("{} ({}{})", each.name, each.address.host(), each.up ? "" : ", down"));
  }
  return texts.empty() ? "none with an address" : fmt::format("{}", fmt::join(texts, ", "));
}

bool is_ipv6_link_local(const Address& address) {
  return address.family() == AF_INET6 && address.is_link_local();
}

/// True if `a` should be published before `b`: an interface with a carrier first, then the better
/// medium, then a configured address rather than a link-local one.
bool is_likelier(const InterfaceAddress* a, const InterfaceAddress* b) {
  if (a->carrier != b->carrier) return a->carrier;
  if (is_better(a->medium, b->medium)) return true;
  if (is_better(b->medium, a->medium)) return false;
  return a->address.is_link_local() < b->address.is_link_local();
}

/// True if the link-local IPv6 address of an interface must be published. Every interface has such
/// an address. It is published only if the interface has no other address, and either its cable is
/// plugged in or the user has named the interface.
bool is_needed(const InterfaceAddress& each, const Interfaces& interfaces, bool named) {
  const bool has_another = std::ranges::any_of(interfaces, [&](const InterfaceAddress& other) {
    return other.name == each.name && !is_ipv6_link_local(other.address);
  });
  const bool is_cable = each.carrier && each.medium.kind == Medium::Kind::cable;
  return !has_another && !each.loopback && (named || is_cable);
}

/// Returns the addresses at which other ranks may reach a listener on all of `interfaces`, the
/// likeliest first.
std::vector<Address> reachable(const Interfaces& interfaces, int family, bool named = false) {
  std::vector<const InterfaceAddress*> others;
  std::vector<Address> loopback;
  for (const InterfaceAddress& each : interfaces) {
    const Address& address = each.address;
    if (!each.up || (family == AF_INET && address.family() != AF_INET)) continue;
    if (is_ipv6_link_local(address) && !is_needed(each, interfaces, named)) continue;
    if (each.loopback || address.is_loopback()) {
      loopback.push_back(address);
    } else {
      others.push_back(&each);
    }
  }
  std::stable_sort(others.begin(), others.end(), is_likelier);
  std::vector<Address> addresses;
  addresses.reserve(others.size());
  for (const InterfaceAddress* each : others) addresses.push_back(each->address);
  return addresses.empty() ? loopback : addresses;
}

void publish(OwnAddresses& own, const std::vector<Address>& addresses, const Log& log) {
  for (const Address& address : addresses) own.published.push_back(address.host());
  if (own.published.size() <= kMaxPublished) return;
  log.warn(
      "this host has {} addresses; only the first {} are published to the other ranks. Select the "
      "addresses to use with MCCL_IFNAME or MCCL_LISTEN_ADDR",
      own.published.size(), kMaxPublished);
  own.published.resize(kMaxPublished);
}

Interfaces named(const std::string& list, const Interfaces& interfaces) {
  Interfaces chosen;
  for (const std::string& name : split(list)) {
    const std::size_t before = chosen.size();
    std::copy_if(interfaces.begin(), interfaces.end(), std::back_inserter(chosen),
                 [&](const InterfaceAddress& each) { return each.name == name; });
    if (chosen.size() == before) {
      throw InvalidArgument(
          fmt::format("MCCL_IFNAME names \"{}\", but this host has no such interface with an "
                      "address; it has {}",
                      name, names_of(interfaces)));
    }
  }
  return chosen;
}

OwnAddresses own_addresses_on_interfaces(const Config& config, const Interfaces& interfaces,
                                         const Log& log) {
  OwnAddresses own;
  const std::vector<std::string> names = split(config.ifname);
  for (const std::string& name : names) {
    const Interfaces chosen = named(name, interfaces);
    std::vector<Address> addresses = reachable(chosen, AF_INET6, true);
    if (addresses.empty()) {
      throw InvalidArgument(fmt::format("MCCL_IFNAME names \"{}\", which is down; this host has {}",
                                        name, names_of(interfaces)));
    }
    // If several interfaces are named, each carries one of several parallel links (a rail) and
    // needs only one address.
    if (names.size() > 1) addresses.resize(1);
    own.bound.insert(own.bound.end(), addresses.begin(), addresses.end());
  }
  own.listed = names.size() > 1;
  publish(own, own.bound, log);
  return own;
}

/// Returns the addresses of one item of MCCL_LISTEN_ADDR.
std::vector<Address> resolve_item(const std::string& item, const Interfaces& interfaces) {
  try {
    return resolve(item, 0);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        fmt::format("MCCL_LISTEN_ADDR: {}; give addresses or names of this host, without a port "
                    "(MCCL_PORT_BASE sets the port); this host has {}",
                    error.what(), names_of(interfaces)));
  }
}

/// Returns the first address of `item`, an item of MCCL_LISTEN_ADDR, that belongs to this host.
/// Throws InvalidArgument if the item has no such address.
Address local_address_of(const std::string& item) {
  const Interfaces interfaces = list_interfaces();
  if (std::ranges::find(interfaces, item, &InterfaceAddress::name) != interfaces.end()) {
    throw InvalidArgument(
        fmt::format("MCCL_LISTEN_ADDR names \"{}\", which is an interface, not an address: set "
                    "MCCL_IFNAME={} instead, or give one of its addresses; this host has {}",
                    item, item, names_of(interfaces)));
  }
  const std::vector<Address> resolved = resolve_item(item, interfaces);
  for (const Address& address : resolved) {
    const Socket probe = Socket::stream(address.family());
    if (::bind(probe.descriptor(), address.data(), address.size()) == 0) return address;
  }
  const std::string meant = resolved.front().host();
  throw InvalidArgument(
      fmt::format("MCCL_LISTEN_ADDR names \"{}\"{}, which is not an address of this host; this "
                  "host has {}; give one of these, or unset MCCL_LISTEN_ADDR",
                  item, meant == item ? "" : fmt::format(" ({})", meant), names_of(interfaces)));
}

OwnAddresses own_addresses_as_listed(const Config& config, const Interfaces& interfaces,
                                     const Log& log) {
  OwnAddresses own;
  std::vector<Address> rails;
  const std::vector<std::string> items = split(config.listen_addr);
  for (const std::string& item : items) {
    const Address address = local_address_of(item);
    if (address.is_wildcard()) {
      if (items.size() > 1) {
        throw InvalidArgument(
            fmt::format("MCCL_LISTEN_ADDR lists {0} beside other addresses, but {0} stands for all "
                        "addresses; list {0} alone, or not at all",
                        item));
      }
      own.bound = {address};
      publish(own, reachable(interfaces, address.family()), log);
      return own;
    }
    const auto same = [&](const Address& other) { return other.same_host(address); };
    rails.push_back(address);
    if (std::ranges::any_of(own.bound, same)) continue;  // Another rail shares this address.
    if (!config.ifname.empty()) {
      const Interfaces allowed = named(config.ifname, interfaces);
      if (std::ranges::none_of(allowed, same, &InterfaceAddress::address)) {
        throw InvalidArgument(
            fmt::format("MCCL_LISTEN_ADDR lists {}, which is on none of the interfaces in "
                        "MCCL_IFNAME ({}); unset one of the two settings",
                        address.host(), config.ifname));
      }
    }
    own.bound.push_back(address);
  }
  own.listed = true;
  publish(own, rails, log);
  return own;
}

OwnAddresses own_addresses(const Config& config, Reach reach, const Interfaces& interfaces,
                           const Log& log) {
  if (!split(config.listen_addr).empty()) return own_addresses_as_listed(config, interfaces, log);
  if (!split(config.ifname).empty()) return own_addresses_on_interfaces(config, interfaces, log);
  OwnAddresses own;
  if (reach == Reach::this_host) own.bound = loopbacks(0, interfaces);
  // One loopback address is enough, because every rank of this host dials the first published
  // address first.
  if (own.bound.size() > 1) own.bound.resize(1);
  publish(own, own.bound.empty() ? reachable(interfaces, AF_INET6) : own.bound, log);
  return own;
}

int port_for(const Config& config, int rank) {
  if (config.port_base == 0) return 0;
  const int port = config.port_base + rank;
  if (port < 1 || port > 65535) {
    throw InvalidArgument(
        fmt::format("rank {} would listen on port {} (MCCL_PORT_BASE {} plus its rank), which is "
                    "outside 1 to 65535; set MCCL_PORT_BASE lower",
                    rank, port, config.port_base));
  }
  if (port == config.master_port) {
    throw InvalidArgument(
        fmt::format("rank {} would listen on port {} (MCCL_PORT_BASE {} plus its rank), which is "
                    "MASTER_PORT, used by torch; set MCCL_PORT_BASE so that no rank's port is {}",
                    rank, port, config.port_base, port));
  }
  return port;
}

/// True if the user has set the port. A C++ program may assign port_base directly, without set(),
/// so any value other than the default also counts as set by the user.
bool is_port_given(const Config& config) {
  return config.port_base_given.yes || config.port_base != Config{}.port_base;
}

[[noreturn]] void explain(const BindError& error, int rank, int port, const Config& config) {
  if (error.code == EADDRINUSE) {
    throw InvalidArgument(
        fmt::format("rank {} cannot listen on port {} (MCCL_PORT_BASE {} plus its rank): another "
                    "program uses it. Set MCCL_PORT_BASE so that the ports are free on every host, "
                    "or to 0 for any free port",
                    rank, port, config.port_base));
  }
  throw InvalidArgument(
      fmt::format("rank {}: {}; check MCCL_PORT_BASE ({}), MCCL_LISTEN_ADDR and MCCL_IFNAME", rank,
                  error.what(), config.port_base));
}

std::vector<Listener> listen_on(const std::vector<Address>& addresses, int port,
                                std::size_t buffer_bytes) {
  std::vector<Listener> listeners;
  if (addresses.empty())
    listeners.push_back(listen_everywhere(static_cast<std::uint16_t>(port), buffer_bytes));
  for (const Address& address : addresses) {
    // If `port` is 0, the system chooses the port of the first listener, and the others use it.
    const int at = listeners.empty() ? port : listeners.front().address().port();
    listeners.emplace_back(address.with_port(static_cast<std::uint16_t>(at)), buffer_bytes);
  }
  return listeners;
}

/// Describes the published addresses and their interfaces, for the log.
std::vector<std::string> descriptions_of(const BoundListeners& binding,
                                         const Interfaces& interfaces) {
  std::vector<std::string> texts;
  for (const std::string& text : binding.endpoint.addresses) {
    const auto address = Address::parse_numeric(text, 0);
    const InterfaceAddress* through = address ? find_interface(interfaces, *address) : nullptr;
    texts.push_back(text + (through ? fmt::format(" ({})", through->text()) : ""));
  }
  return texts;
}

}  // namespace

Listener listen_everywhere(std::uint16_t port, std::size_t buffer_bytes) {
  try {
    return {Address::wildcard(AF_INET6, port), buffer_bytes};
  } catch (const BindError& error) {
    if (error.code == EADDRINUSE || error.code == EACCES) throw;
    return {Address::wildcard(AF_INET, port), buffer_bytes};  // This host has no IPv6.
  }
}

BoundListeners bind_listeners(const Config& config, int rank, Reach reach,
                              const Interfaces& interfaces, const Log& log) {
  int port = port_for(config, rank);
  const OwnAddresses own = own_addresses(config, reach, interfaces, log);
  BoundListeners binding;
  for (int tries = 1; binding.listeners.empty(); ++tries) {
    try {
      binding.listeners = listen_on(own.bound, port, socket_buffer_bytes_of(config));
    } catch (const BindError& error) {
      if (port != 0 && error.code == EADDRINUSE && !is_port_given(config)) {
        // A firewall between hosts may block the free port.
        log.write(
            reach == Reach::any_host ? LogLevel::warn : LogLevel::info,
            fmt::format(
                "port {} (the default of MCCL_PORT_BASE, {}, plus the rank) is taken, perhaps by "
                "another job on this host: this rank listens on a free port instead; set "
                "MCCL_PORT_BASE if a firewall needs a fixed port",
                port, config.port_base));
        port = 0;
        continue;
      }
      // The port that the system chose for the first address may be taken at another address; try
      // again.
      if (port != 0 || error.code != EADDRINUSE || tries == kEphemeralTries)
        explain(error, rank, port, config);
      continue;
    }
    const bool is_torch_s = binding.listeners.front().address().port() == config.master_port;
    if (port == 0 && is_torch_s && tries < kEphemeralTries) binding.listeners.clear();
  }
  binding.endpoint.rank = rank;
  binding.endpoint.host = transport::tcp::host_identity();
  binding.endpoint.host_name = host_name_as_word();
  binding.endpoint.port = binding.listeners.front().address().port();
  binding.endpoint.addresses = own.published;
  binding.endpoint.listed = own.listed;
  if (own.published.empty()) {
    throw InvalidArgument(fmt::format(
        "rank {} has no address that peers can reach: no interface is up; this host has {}", rank,
        names_of(interfaces)));
  }
  std::vector<std::string> places;
  for (const Listener& listener : binding.listeners) places.push_back(listener.address().text());
  log.info(
      "this rank runs on {} and listens at {}; addresses published to the other ranks, best "
      "first: {}",
      host_name(), fmt::join(places, ", "), fmt::join(descriptions_of(binding, interfaces), ", "));
  return binding;
}

}  // namespace mccl::rendezvous
