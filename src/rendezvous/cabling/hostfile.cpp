#include "rendezvous/cabling/hostfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "base/json_text.h"
#include "mccl/error.h"

namespace mccl::rendezvous {
namespace {

using nlohmann::json;

constexpr std::string_view kForm =
    R"([["host:port", ...], ...], a list of addresses for each rank)";

[[noreturn]] void refuse(std::string_view origin, const std::string& what) {
  throw InvalidArgument(fmt::format("{}: {}; expected {}", origin, what, kForm));
}

HostPort address_of(const json& item, std::size_t rank, std::string_view origin) {
  if (!item.is_string())
    refuse(origin, fmt::format("rank {} has {} as an address", rank, item.dump()));
  try {
    return parse_host_port(item.get<std::string>());
  } catch (const InvalidArgument&) {
    // refuse() below reports the error.
  }
  refuse(origin, fmt::format("rank {} has the invalid address {}", rank, item.dump()));
}

/// Returns the hosts in the order of their addresses, without duplicates.
std::vector<std::string> hosts_of(const std::vector<HostPort>& addresses) {
  std::vector<std::string> hosts;
  for (const HostPort& each : addresses)
    if (std::ranges::find(hosts, each.host) == hosts.end()) hosts.push_back(each.host);
  return hosts;
}

/// True if two addresses lie in one network of the size that is usual for a single cable: a /30 of
/// IPv4, or a /64 of IPv6. The network of a name is unknown, so a name counts as a neighbour of
/// every address.
bool are_neighbours(const std::string& a, const std::string& b) {
  const auto of_a = Address::parse_numeric(a.substr(0, a.find('%')), 0);
  const auto of_b = Address::parse_numeric(b.substr(0, b.find('%')), 0);
  if (!of_a || !of_b) return true;
  return InterfaceAddress{"", *of_a, of_a->family() == AF_INET ? 30 : 64}.reaches(*of_b);
}

/// Resolves `host` from the hostfile to addresses of this host. Returns an empty list if a name
/// resolves to no such address. Loopback addresses of a name do not count, because on Debian a
/// host's own name resolves to 127.0.1.1.
std::vector<Address> own_addresses_of(const std::string& host, std::uint16_t port) {
  const std::string number = host == "localhost" ? "127.0.0.1" : host;
  if (const auto numeric = Address::parse_numeric(number, port)) return {*numeric};
  std::vector<Address> addresses;
  try {
    addresses = resolve(host, port);
  } catch (const Error&) {
    return {};  // An unknown name is no error: other ranks may be able to resolve it.
  }
  const auto interfaces = list_interfaces();
  std::erase_if(addresses, [&](const Address& each) {
    return each.is_loopback() || !transport::tcp::find_interface(interfaces, each);
  });
  return addresses;
}

}  // namespace

bool is_covered(const Address& wanted, const std::vector<Address>& addresses) {
  return std::ranges::any_of(addresses, [&](const Address& each) {
    return each == wanted || (each.is_wildcard() && each.port() == wanted.port());
  });
}

AddressTable parse_hostfile(std::string_view text, std::string_view origin) {
  const json document = parse_json(text, origin, kForm);
  if (!document.is_array() || document.empty()) refuse(origin, "it is not a list of ranks");
  AddressTable table;
  std::map<std::pair<std::string, int>, std::size_t> owners;
  for (const json& entry : document) {
    const std::size_t rank = table.size();
    if (!entry.is_array() || entry.empty())
      refuse(origin, fmt::format("rank {} has no list of addresses", rank));
    std::vector<HostPort>& addresses = table.emplace_back();
    for (const json& item : entry) {
      const HostPort address = address_of(item, rank, origin);
      const auto [owner, is_new] = owners.emplace(std::pair(address.host, address.port), rank);
      if (owner->second != rank) {
        throw InvalidArgument(
            fmt::format("{}: ranks {} and {} have the same address, {}; give each rank its own",
                        origin, owner->second, rank, item.get<std::string>()));
      }
      if (is_new) addresses.push_back(address);
    }
  }
  return table;
}

AddressTable read_hostfile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw InvalidArgument(
        fmt::format("MCCL_HOSTFILE {} cannot be read: {}", path, std::strerror(errno)));
  }
  return parse_hostfile(text.str(), fmt::format("MCCL_HOSTFILE {}", path));
}

std::string text_of(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port)
            : fmt::format("{}:{}", address.host, address.port);
}

bool may_be_sparse(const AddressTable& table) {
  if (table.size() < 2) return false;
  const auto is_everywhere = [&](const HostPort& common) {
    return std::ranges::all_of(table, [&](const std::vector<HostPort>& addresses) {
      return std::ranges::find(addresses, common.host, &HostPort::host) != addresses.end();
    });
  };
  if (std::ranges::any_of(table.front(), is_everywhere)) return false;
  // If the hosts with the same index are neighbours, each pair of them is one cable, so the two
  // ranks need not search for cables.
  return table.size() > 2 ||
         !std::ranges::equal(hosts_of(table.front()), hosts_of(table.back()), are_neighbours);
}

bool share_networks(const AddressTable& table, int rank) {
  if (table.size() != 2) return false;
  const auto& own = table[static_cast<std::size_t>(rank)];
  const auto& others = table[static_cast<std::size_t>(1 - rank)];
  const auto interfaces = list_interfaces();
  return std::ranges::equal(own, others, [&](const auto& here, const auto& there) {
    const auto from = Address::parse_numeric(here.host, 0);
    const auto to = Address::parse_numeric(there.host, 0);
    if (!from || !to) return false;
    if (from->is_loopback() && to->is_loopback()) return true;
    const auto* const interface = transport::tcp::find_interface(interfaces, *from);
    return interface != nullptr && interface->reaches(*to);
  });
}

std::vector<Address> own_addresses(const AddressTable& table, int rank) {
  std::vector<Address> everywhere;
  std::vector<Address> listed;
  for (const auto& [host, port] : table[static_cast<std::size_t>(rank)]) {
    const std::vector<Address> own = own_addresses_of(host, port);
    if (own.empty()) everywhere.push_back(Address::wildcard(AF_INET6, port));
    for (const Address& each : own) (each.is_wildcard() ? everywhere : listed).push_back(each);
  }
  std::vector<Address> addresses;
  for (const std::vector<Address>* each : {&everywhere, &listed}) {
    for (const Address& address : *each)
      if (!is_covered(address, addresses)) addresses.push_back(address);
  }
  return addresses;
}

}  // namespace mccl::rendezvous
