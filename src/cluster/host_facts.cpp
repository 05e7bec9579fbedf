#include "cluster/host_facts.h"

#include <algorithm>
#include <array>

#include "cluster/text.h"

namespace mccl::cluster {

std::string_view name_of(System system) {
  constexpr std::array<std::string_view, 3> kNames = {"unknown", "Linux", "macOS"};
  return kNames[static_cast<std::size_t>(system)];
}

std::string_view name_of(Medium medium) {
  constexpr std::array<std::string_view, 5> kNames = {"cable", "Thunderbolt", "Wi-Fi", "software",
                                                      "loopback"};
  return kNames[static_cast<std::size_t>(medium)];
}

const Interface* HostFacts::interface(const std::string& name) const {
  const auto found = std::ranges::find(interfaces, name, &Interface::name);
  return found == interfaces.end() ? nullptr : &*found;
}

std::vector<std::string> HostFacts::items_of(const std::string& variable) const {
  std::vector<std::string> items;
  const auto found = variables.find(variable);
  if (found == variables.end()) return items;
  const std::string& list = found->second;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = trimmed(std::string_view(list).substr(begin, end - begin));
    if (!item.empty()) items.emplace_back(item);
    begin = end + 1;
  }
  return items;
}

}  // namespace mccl::cluster
