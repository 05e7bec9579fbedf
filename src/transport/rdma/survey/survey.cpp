#include "transport/rdma/survey/survey.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "transport/rdma/survey/advice.h"
#include "transport/rdma/survey/device_table.h"

namespace mccl::transport::rdma {
namespace {

std::string own_host() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

struct Wanted {
  std::vector<std::string> names;
  std::vector<std::vector<std::size_t>> leads_to;
};

/// The setting is a list of names, or the path of a table in the format of MLX's jaccl.
Wanted wanted_devices(const Config& config, WorldRank rank, int size) {
  const std::string& setting = config.rdma_device;
  if (setting.find('/') == setting.npos) {
    if (!config.rdma_ring) return {names_in(setting), {}};
    throw InvalidArgument(
        "MCCL_RDMA_RING says that a table of RDMA devices is a ring, but MCCL_RDMA_DEVICE is not "
        "the path of a table");
  }
  Wanted wanted;
  DeviceTable table = read_device_table(setting, size);
  if (config.rdma_ring) {
    require_shape(setting, table, true);
    table = ring_of(std::move(table));
  }
  for (const auto& to_peer : table[rank.index()]) {
    wanted.leads_to.emplace_back();
    for (const std::string& name : to_peer) {
      const auto known = std::find(wanted.names.begin(), wanted.names.end(), name);
      wanted.leads_to.back().push_back(static_cast<std::size_t>(known - wanted.names.begin()));
      if (known == wanted.names.end()) wanted.names.push_back(name);
    }
  }
  return wanted;
}

void require_few(const Wanted& wanted, WorldRank rank) {
  if (wanted.names.size() <= kMostDevices) return;
  throw InvalidArgument(
      fmt::format("MCCL_RDMA_DEVICE: expected at most {} devices of one rank; found {} of rank {}",
                  kMostDevices, wanted.names.size(), rank));
}

/// On macOS, rc is used only if the setting requests it, because Apple's devices support only uc.
std::vector<Service> services_of(const std::string& wanted) {
  if (wanted == "rc") return {Service::rc};
#ifdef __APPLE__
  return {Service::uc};
#else
  if (wanted == "uc") return {Service::uc};
  return {Service::rc, Service::uc};
#endif
}

DeviceCard card_of(const Station& station, const std::string& name, const std::string& wanted) {
  DeviceCard card{name, {}, {}};
  for (const Gid& gid : wanted_gids(station.gids(), wanted)) {
    const std::string kind = kind_of(gid);
    if (std::find(card.kinds.begin(), card.kinds.end(), kind) == card.kinds.end())
      card.kinds.push_back(kind);
  }
  if (!card.kinds.empty()) return card;
  throw Error(without_address(name, station.port().number, wanted));
}

bool is_kind(const Gid& gid, const std::string& wanted) {
  if (wanted == "roce_v2") return gid.type == GidType::roce_v2;
  if (wanted == "roce_v1") return gid.type == GidType::roce_v1;
  if (wanted == "infiniband") return gid.type == GidType::infiniband;
  if (wanted == "ipv4") return family_of(gid.bytes) == Family::ipv4;
  if (wanted == "ipv6") return family_of(gid.bytes) != Family::ipv4;
  return text_of(gid.bytes) == wanted;
}

}  // namespace

std::vector<Gid> wanted_gids(std::vector<Gid> gids, const std::string& wanted) {
  if (!wanted.empty()) std::erase_if(gids, [&](const Gid& gid) { return !is_kind(gid, wanted); });
  return gids;
}

Card card_without(const std::string& why) {
  Card card;
  card.host = own_host();
  card.why = why;
  return card;
}

Survey survey(const Config& config, WorldRank rank, int size, const std::shared_ptr<Verbs>& verbs,
              const std::string& why) {
  const Wanted wanted = wanted_devices(config, rank, size);
  require_few(wanted, rank);
  const bool by_name = !wanted.names.empty();
  Survey found{card_without(why), false, {}};
  found.card.leads_to = wanted.leads_to;
  if (!verbs) {
    for (const std::string& name : wanted.names) found.card.devices.push_back({name, {}, why});
    return found;
  }
  std::vector<std::string> there = verbs->devices();
  if (!by_name && there.size() > kMostDevices) there.resize(kMostDevices);
  found.has_devices = !there.empty() || by_name;
  std::vector<std::string> missing;
  if (there.empty()) missing.emplace_back("it has no RDMA device (ibv_devices lists none)");
  for (const std::string& name : by_name ? wanted.names : there) {
    try {
      if (std::find(there.begin(), there.end(), name) == there.end())
        throw Error(not_there(name, there));
      auto station = std::make_shared<Station>(verbs, name, config.rdma_port);
      found.card.devices.push_back(card_of(*station, name, config.rdma_gid));
      found.stations.push_back(std::move(station));
    } catch (const Error& error) {
      missing.emplace_back(error.what());
      // A device that the settings do not list is optional.
      if (!by_name) continue;
      found.card.devices.push_back({name, {}, error.what()});
      found.stations.emplace_back();
    }
  }
  const bool must = by_name && config.transport == "rdma";
  const auto is_usable = [](const auto& station) { return station != nullptr; };
  if (std::ranges::none_of(found.stations, is_usable) || (must && !missing.empty())) {
    found.stations.clear();
    found.card.why = fmt::format("{}", fmt::join(missing, "; "));
    return found;
  }
  found.card.why.clear();
  found.card.services = services_of(config.rdma_service);
  return found;
}

}  // namespace mccl::transport::rdma
