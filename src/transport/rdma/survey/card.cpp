#include "transport/rdma/survey/card.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/value_text.h"
#include "transport/rdma/survey/grid.h"

namespace mccl::transport::rdma {
namespace {

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

/// Parses a peer's `leads_to`. Rejects indices that are not below `devices`, the number of its
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

/// Maximum number of lines below the table.
constexpr std::size_t kMostTold = 12;

/// Returns the devices that lead to the peer, separated by commas. An unusable device is prefixed:
/// "rdma_en2,MISSING rdma_en3". Returns "MISSING" if no device leads to the peer.
std::string devices_to(const Card& card, std::size_t peer) {
  if (card.devices.empty()) return kMissing;
  std::vector<std::string> names;
  for (std::size_t place = 0; place < card.devices.size(); ++place) {
    if (!card.leads_to.empty()) {
      if (peer >= card.leads_to.size()) break;
      const auto& places = card.leads_to[peer];
      if (std::find(places.begin(), places.end(), place) == places.end()) continue;
    }
    const DeviceCard& device = card.devices[place];
    names.push_back(device.why.empty() ? device.name : fmt::format("{} {}", kMissing, device.name));
  }
  return names.empty() ? kMissing : fmt::format("{}", fmt::join(names, ","));
}

/// Returns one line for each reason why a rank cannot use a device, without duplicates per host.
std::vector<std::string> lacking(const std::vector<Card>& cards) {
  std::vector<std::string> lines;
  std::set<std::string> told;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    std::vector<std::string> reasons;
    for (const DeviceCard& device : card.devices) {
      if (!device.why.empty()) reasons.push_back(device.why);
    }
    if (reasons.empty() && !card.why.empty()) reasons.push_back(card.why);
    for (const std::string& reason : reasons) {
      if (told.insert(card.host + "\n" + reason).second)
        lines.push_back(fmt::format("rank {} ({}): {}", rank, card.host, reason));
    }
  }
  return lines;
}

}  // namespace

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
        fmt::format("rank {} published no valid list of RDMA devices; is the store shared with "
                    "another program?",
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
  throw Error(fmt::format("{} uses {} queue pairs and {} uses {} (MCCL_RDMA_SERVICE)", here.host,
                          services_of(here), there.host, services_of(there)));
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
    if (!card->why.empty()) throw Error(fmt::format("{} has no RDMA: {}", card->host, card->why));
  }
  (void)common_service(here, there);
  const std::vector<std::size_t> mine = leading_to(here, peer);
  const std::vector<std::size_t> theirs = leading_to(there, self);
  if (mine.empty() || theirs.empty()) {
    throw Error(fmt::format("the table of devices names no device from rank {} to rank {}",
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
  throw Error(fmt::format(
      "{} and {} have no addresses of one kind: {} has {}, {} has {}; give the interfaces of both "
      "an address of the same kind, such as IPv4",
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
                                : devices_to(cards[rank], peer));
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
