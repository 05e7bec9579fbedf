// What each rank says of its RDMA devices while the ranks meet, so that both ends of a pair know
// alike whether they can have links, and all know what is missing where.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/rank.h"
#include "transport/rdma/gid.h"
#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

/// A rank tells others of so many.
inline constexpr std::size_t kMostDevices = 64;

struct DeviceCard {
  std::string name;
  std::vector<std::string> kinds;  ///< Of its addresses: "RoCE v2 over IPv4", each once.
  /// What it lacks, with what to do; empty where it can be used.
  std::string why = {};
};

struct Card {
  std::string host;
  std::string why;  ///< No device can be used, and why; empty where `devices` can.
  std::vector<Service> services;
  std::vector<DeviceCard> devices;
  /// Where each device leads to some ranks only, as cables do: for each rank, the places of those
  /// that lead to it. Empty where every device leads to all.
  std::vector<std::vector<std::size_t>> leads_to;
};

/// One line.
std::string serialise(const Card& card);
/// Of a peer; its texts are made fit to be shown, and cut where they are long. Throws
/// CorruptionError.
Card parse_card(WorldRank rank, std::string_view text);

/// What the two both have, rc before uc. Throws Error, saying what is missing, when there is none.
Service common_service(const Card& here, const Card& there);
/// Whether two devices have addresses that fit.
bool fit(const DeviceCard& here, const DeviceCard& there);
/// A rail for each device that both have, as the places of the devices of `here`: the first of one
/// with the first of the other, and so on, where both can be used and fit. The two are ranks `self`
/// and `peer`.
/// Throws Error, saying what is missing, when there is none.
std::vector<std::size_t> common_rails(const Card& here, WorldRank self, const Card& there,
                                      WorldRank peer);
/// The tables of both say that no cable joins them, so that nothing is missing.
bool is_uncabled(const Card& here, WorldRank self, const Card& there, WorldRank peer);

/// Of all ranks, in their order: which device of whom leads to whom, where one is missing, and what
/// to do on which host. Several lines.
std::string picture_of(const std::vector<Card>& cards);

}  // namespace mccl::transport::rdma
