#include "cluster/host_facts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/value_text.h"
#include "cluster/text.h"

namespace mccl::cluster {

std::string_view name_of(System system) {
  constexpr std::array<std::string_view, 3> kNames = {"unknown", "Linux", "macOS"};
  return kNames[static_cast<std::size_t>(system)];
}

std::string_view name_of(InterfaceKind medium) {
  constexpr std::array<std::string_view, 5> kNames = {"cable", "Thunderbolt", "Wi-Fi", "software",
                                                      "loopback"};
  return kNames[static_cast<std::size_t>(medium)];
}

std::vector<Network> Interface::ipv4() const {
  std::vector<Network> found = addresses;
  std::erase_if(found, [](const Network& network) { return network.address.is_ipv6; });
  return found;
}

bool Interface::has_address(const std::string& text) const {
  const auto wanted = parse_address(text);
  return std::ranges::any_of(addresses, [&](const Network& n) { return n.address == wanted; });
}

const Interface* HostFacts::interface(std::string_view name) const {
  const auto found = std::ranges::find(interfaces, name, &Interface::name);
  return found == interfaces.end() ? nullptr : &*found;
}

Interface* HostFacts::interface(std::string_view name) {
  return const_cast<Interface*>(std::as_const(*this).interface(name));
}

const Interface* HostFacts::interface_with(const std::string& address) const {
  const auto found = std::ranges::find_if(
      interfaces, [&](const Interface& each) { return each.has_address(address); });
  return found == interfaces.end() ? nullptr : &*found;
}

std::vector<std::string> HostFacts::items_of(const std::string& variable) const {
  std::vector<std::string> items;
  const auto found = settings.find(variable);
  if (found == settings.end()) return items;
  for (const std::string_view item : split(found->second, ','))
    if (!trimmed(item).empty()) items.emplace_back(trimmed(item));
  return items;
}

std::string names_of(Hosts hosts) {
  std::string names;
  for (const HostFacts& host : hosts) names += (names.empty() ? "" : ", ") + host.host;
  return names;
}

}  // namespace mccl::cluster
