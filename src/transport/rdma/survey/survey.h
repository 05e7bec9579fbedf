// Selection of the devices that this rank uses, and their description (Card) for the other ranks.
// The ranks exchange their cards through the store. Both ends of a pair decide from the same two
// cards whether they can have links, so both reach the same decision. Each rank can report the
// devices that any rank lacks.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/rank.h"
#include "mccl/config.h"
#include "transport/rdma/station.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

/// Maximum number of devices that a rank describes.
inline constexpr std::size_t kMostDevices = 64;

struct DeviceCard {
  std::string name;
  /// Kinds of the device's addresses, such as "RoCE v2 over IPv4", each once.
  std::vector<std::string> kinds;
  /// The reason why the device cannot be used, with advice; empty if it can be used.
  std::string why = {};
};

struct Card {
  std::string host;
  std::string why;  ///< The reason why no device can be used; empty if at least one can be used.
  std::vector<Service> services;
  std::vector<DeviceCard> devices;
  /// For each rank, the indices of the devices that lead to it, if each device reaches only some
  /// ranks, as with direct cables. Empty if every device reaches all ranks.
  std::vector<std::vector<std::size_t>> leads_to;
};

/// Returns the card as one line of JSON.
std::string serialise(const Card& card);
/// Parses a peer's card. Makes its texts printable, and shortens long texts. Throws CorruptionError
/// if `text` is not a card.
Card parse_card(WorldRank rank, std::string_view text);

/// Returns the best service that both ranks have; rc is preferred to uc. Throws Error if they have
/// no service in common; the message lists the services of both ranks.
Service common_service(const Card& here, const Card& there);
/// True if both devices have an address of the same kind.
bool fit(const DeviceCard& here, const DeviceCard& there);
/// Returns the rails (parallel links) between two ranks, as indices of the devices of `here`. The
/// first device of one rank is paired with the first device of the other rank, and so on. Such a
/// pair of devices is a rail if both devices are usable and fit() is true for them. `here` is the
/// card of rank `self`, `there` is the card of rank `peer`. Throws Error if there is no rail; the
/// message contains the reason.
std::vector<std::size_t> common_rails(const Card& here, WorldRank self, const Card& there,
                                      WorldRank peer);
/// True if both ranks have a device table, and neither table has a device to the other rank. No
/// cable joins the two ranks then, so no device is missing.
bool is_uncabled(const Card& here, WorldRank self, const Card& there, WorldRank peer);

/// Returns a table of the devices that lead from each rank to each other rank, in which missing
/// devices are marked. Lines below the table say why a rank cannot use a device. `cards` holds the
/// cards of all ranks in rank order.
std::string picture_of(const std::vector<Card>& cards);

struct Survey {
  Card card;
  /// True if this host has an RDMA device, usable or not, or a setting lists devices.
  bool has_devices = false;
  /// Stations in the order of the card's devices; null for a device that cannot be used.
  std::vector<std::shared_ptr<Station>> stations;
};

/// Opens devices for `rank` of a job of `size` ranks: those listed in the settings, or all devices
/// with an active port if the settings list none. `verbs` may be null, with the reason in `why`.
/// Does not throw for a missing device; the card reports it. If the transport must be rdma and a
/// listed device is missing, the card reports that no device can be used. Throws InvalidArgument
/// for invalid settings.
Survey survey(const Config& config, WorldRank rank, int size, const std::shared_ptr<Verbs>& verbs,
              const std::string& why);
/// Returns the card of a rank that uses no RDMA device. `why` is the reason, which becomes
/// Card::why.
Card card_without(const std::string& why);

/// Returns the addresses that the setting `wanted` allows: all addresses if `wanted` is empty, the
/// addresses of one kind (roce_v2, roce_v1, infiniband, ipv4, ipv6), or the one address that
/// `wanted` contains.
std::vector<Gid> wanted_gids(std::vector<Gid> gids, const std::string& wanted);

}  // namespace mccl::transport::rdma
