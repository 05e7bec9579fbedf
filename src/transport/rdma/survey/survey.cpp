#include "transport/rdma/survey/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "base/rank_path.h"
#include "base/value_text.h"
#include "transport/rdma/survey/advice.h"
#include "transport/rdma/survey/device_table.h"
#include "transport/tcp/interfaces.h"

namespace mccl::transport::rdma {
namespace {

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

struct ConfiguredDevices {
  std::vector<std::string> names;
  std::vector<std::vector<std::size_t>> leads_to;
};

/// Parses MCCL_RDMA_DEVICE: a list of names, or the path of a table in the format of MLX's jaccl.
ConfiguredDevices wanted_devices(const Config& config, WorldRank rank, int size) {
  const std::string& setting = config.rdma_device;
  if (setting.find('/') == setting.npos) {
    if (!config.rdma_ring) return {names_in(setting), {}};
    throw InvalidArgument(
        "MCCL_RDMA_RING is set, but MCCL_RDMA_DEVICE is not the path of a table of RDMA devices; "
        "give the path of a table, or unset MCCL_RDMA_RING");
  }
  ConfiguredDevices wanted;
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

void require_few(const ConfiguredDevices& wanted, WorldRank rank) {
  if (wanted.names.size() <= kMostDevices) return;
  throw InvalidArgument(fmt::format(
      "MCCL_RDMA_DEVICE: expected at most {} devices for each rank; found {} for rank {}",
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

using nlohmann::json;

/// Maximum number of address kinds accepted from a peer.
constexpr std::size_t kMostKinds = 16;

std::string kinds_of(const Card& card) {
  std::vector<std::string> all;
  for (const DeviceCard& device : card.devices) {
    all.push_back(fmt::format("{} {}", device.name, fmt::join(device.kinds, ", ")));
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

std::string services_of(const Card& card) {
  std::vector<std::string_view> names;
  for (const Service service : card.services) names.push_back(name_of(service));
  return fmt::format("{}", fmt::join(names, " and "));
}

std::vector<std::size_t> leading_to(const Card& card, WorldRank rank) {
  if (!card.leads_to.empty())
    return rank.index() < card.leads_to.size() ? card.leads_to[rank.index()]
                                               : std::vector<std::size_t>();
  std::vector<std::size_t> all(card.devices.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

/// Parses a peer's `leads_to`. Throws if an index is not less than `devices`, the peer's number of
/// devices.
std::vector<std::vector<std::size_t>> places_in(const json& said, std::size_t devices) {
  std::vector<std::vector<std::size_t>> leads_to;
  for (const json& row : said.get_ref<const json::array_t&>()) {
    std::vector<std::size_t>& places = leads_to.emplace_back();
    for (const json& place : row.get_ref<const json::array_t&>()) {
      if (!place.is_number_unsigned() || place.get<std::size_t>() >= devices)
        throw CorruptionError("a device that does not exist");
      places.push_back(place.get<std::size_t>());
    }
  }
  return leads_to;
}

/// Maximum number of reasons that picture_of() lists below its table.
constexpr std::size_t kMostTold = 12;

/// Returns the devices that lead to the peer, separated by commas. An unusable device is prefixed:
/// "rdma_en2,MISSING rdma_en3". Returns "MISSING" if no device leads to the peer.
std::string devices_to(const Card& card, WorldRank peer) {
  if (card.devices.empty()) return kMissing;
  std::vector<std::string> names;
  for (const std::size_t place : leading_to(card, peer)) {
    const DeviceCard& device = card.devices[place];
    names.push_back(device.why.empty() ? device.name : fmt::format("{} {}", kMissing, device.name));
  }
  return names.empty() ? kMissing : fmt::format("{}", fmt::join(names, ","));
}

/// Returns one line for each reason why a rank cannot use a device. A reason appears only once per
/// host.
std::vector<std::string> lacking(const std::vector<Card>& cards) {
  std::vector<std::string> lines;
  std::set<std::string> logged;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    std::vector<std::string> reasons;
    for (const DeviceCard& device : card.devices) {
      if (!device.why.empty()) reasons.push_back(device.why);
    }
    if (reasons.empty() && !card.why.empty()) reasons.push_back(card.why);
    for (const std::string& reason : reasons) {
      if (logged.insert(card.host + "\n" + reason).second)
        lines.push_back(fmt::format("rank {} ({}): {}", rank, card.host, reason));
    }
  }
  return lines;
}

}  // namespace

std::vector<Gid> wanted_gids(std::vector<Gid> gids, const std::string& wanted) {
  if (!wanted.empty()) std::erase_if(gids, [&](const Gid& gid) { return !is_kind(gid, wanted); });
  return gids;
}

Card card_without(const std::string& why) {
  Card card;
  card.host = host_name();
  card.why = why;
  return card;
}

Survey survey(const Config& config, WorldRank rank, int size, const std::shared_ptr<Verbs>& verbs,
              const std::string& why) {
  const ConfiguredDevices wanted = wanted_devices(config, rank, size);
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
      // A device that the settings do not list is optional: the card leaves it out.
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

std::string serialise(const Card& card) {
  json services = json::array(), devices = json::array();
  for (const Service service : card.services) services.push_back(std::string(name_of(service)));
  for (const DeviceCard& device : card.devices)
    devices.push_back({device.name, device.kinds, device.why});
  return json::array({card.host, card.why, services, devices, card.leads_to})
      .dump(-1, ' ', true, json::error_handler_t::replace);
}

Card parse_card(WorldRank rank, std::string_view text) {
  try {
    const json said = json::parse(text);
    Card card;
    card.host = printable(said.at(0).get<std::string>());
    card.why = printable(said.at(1).get<std::string>());
    for (const json& service : said.at(2)) {
      card.services.push_back(service.get<std::string>() == "rc" ? Service::rc : Service::uc);
    }
    for (const json& device : said.at(3)) {
      auto kinds = device.at(1).get<std::vector<std::string>>();
      for (std::string& kind : kinds) kind = printable(kind);
      card.devices.push_back({printable(device.at(0).get<std::string>()), std::move(kinds),
                              printable(device.at(2).get<std::string>())});
      if (card.devices.size() > kMostDevices || card.devices.back().kinds.size() > kMostKinds)
        throw CorruptionError("too many");
    }
    card.leads_to = places_in(said.at(4), card.devices.size());
    return card;
  } catch (const std::exception&) {
    throw CorruptionError(
        fmt::format("rank {} published no valid list of RDMA devices; check that no other program "
                    "uses the store",
                    rank));
  }
}

Service common_service(const Card& here, const Card& there) {
  for (const Service service : {Service::rc, Service::uc}) {
    const auto has = [service](const Card& card) {
      return std::find(card.services.begin(), card.services.end(), service) != card.services.end();
    };
    if (has(here) && has(there)) return service;
  }
  throw Error(fmt::format(
      "{} uses {} queue pairs and {} uses {} (MCCL_RDMA_SERVICE); set the same value on both",
      here.host, services_of(here), there.host, services_of(there)));
}

bool fit(const DeviceCard& here, const DeviceCard& there) {
  return std::any_of(here.kinds.begin(), here.kinds.end(), [&](const std::string& kind) {
    return std::find(there.kinds.begin(), there.kinds.end(), kind) != there.kinds.end();
  });
}

bool is_uncabled(const Card& here, WorldRank self, const Card& there, WorldRank peer) {
  return !here.leads_to.empty() && !there.leads_to.empty() && leading_to(here, peer).empty() &&
         leading_to(there, self).empty();
}

std::vector<std::size_t> common_rails(const Card& here, WorldRank self, const Card& there,
                                      WorldRank peer) {
  for (const Card* card : {&here, &there}) {
    if (!card->why.empty())
      throw Error(fmt::format("{} cannot use RDMA: {}", card->host, card->why));
  }
  (void)common_service(here, there);
  const std::vector<std::size_t> mine = leading_to(here, peer);
  const std::vector<std::size_t> theirs = leading_to(there, self);
  if (mine.empty() || theirs.empty()) {
    throw Error(fmt::format(
        "the RDMA device table (MCCL_RDMA_DEVICE) names no device on rank {} that leads to rank {}",
        mine.empty() ? self : peer, mine.empty() ? peer : self));
  }
  std::vector<std::size_t> rails;
  std::vector<std::string> faults;
  for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    const DeviceCard& near = here.devices[mine[i]];
    const DeviceCard& far = there.devices[theirs[i]];
    if (!near.why.empty()) faults.push_back(fmt::format("on {}, {}", here.host, near.why));
    if (!far.why.empty()) faults.push_back(fmt::format("on {}, {}", there.host, far.why));
    if (near.why.empty() && far.why.empty() && fit(near, far)) rails.push_back(mine[i]);
  }
  if (!rails.empty()) return rails;
  if (!faults.empty()) throw Error(fmt::format("{}", fmt::join(faults, "; ")));
  throw Error(
      fmt::format("{} and {} have no addresses of the same kind: {} has {}, {} has {}; give the "
                  "interfaces of both an address of the same kind, such as IPv4",
                  here.host, there.host, here.host, kinds_of(here), there.host, kinds_of(there)));
}

std::string picture_of(const std::vector<Card>& cards) {
  Grid cells(cards.size());
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    names.push_back(fmt::format("rank {} ({})", rank, cards[rank].host));
    for (std::size_t peer = 0; peer < cards.size(); ++peer) {
      const WorldRank self(static_cast<int>(rank)), other(static_cast<int>(peer));
      cells[rank].push_back(rank == peer ? kSelf
                            : is_uncabled(cards[rank], self, cards[peer], other)
                                ? kNoCable
                                : devices_to(cards[rank], other));
    }
  }
  std::string picture = draw(cells, names);
  std::vector<std::string> lines = lacking(cards);
  const std::size_t more = lines.size() > kMostTold ? lines.size() - kMostTold : 0;
  lines.resize(lines.size() - more);
  for (const std::string& line : lines) picture += "\n  " + line;
  if (more != 0) picture += fmt::format("\n  and {} more", more);
  return picture;
}

}  // namespace mccl::transport::rdma
