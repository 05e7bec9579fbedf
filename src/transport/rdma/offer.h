// Messages that the two ends exchange over their control connection while they make a link. The
// dialing end offers its queue pair and all its addresses. The other end answers with its own queue
// pair and the two addresses that it has chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rank.h"
#include "transport/rdma/pair/pair.h"
#include "transport/rdma/verbs/gid.h"
#include "transport/transport.h"

namespace mccl::transport::rdma {

struct Offer {
  bool is_answer = false;
  Service service = Service::rc;
  LinkLayer layer = LinkLayer::unknown;
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;
  FarEnd end;
  int mtu_bytes = 1024;
  std::uint16_t lid = 0;
  /// Addresses of the sender: all of them in an offer, only the chosen one in an answer. Gid::index
  /// is an index in the sender's table.
  std::vector<Gid> gids;
  /// In an answer: index of the chosen one of the offered addresses.
  std::uint8_t chosen = 0;
};

/// Maximum number of addresses in an offer.
inline constexpr std::size_t kMostOffered = 32;

Blob encode(const Offer& offer);
/// Throws CorruptionError.
Offer decode_offer(WorldRank peer, std::span<const std::byte> told);

}  // namespace mccl::transport::rdma
