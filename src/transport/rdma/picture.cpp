// Implements picture_of() of card.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "mccl/error.h"
#include "transport/rdma/card.h"
#include "transport/rdma/grid.h"

namespace mccl::transport::rdma {
namespace {

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
