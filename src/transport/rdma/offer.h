// What the two ends of a link to be tell each other, by their control connection: the end that
// dials offers its queue pair and all its addresses, the other answers with its own and the two
// addresses that it has chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rank.h"
#include "transport/rdma/gid.h"
#include "transport/rdma/pair.h"
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
  /// Of an answer, the one that it has chosen. The index is its owner's.
  std::vector<Gid> gids;
  /// Of an answer: which of the offered addresses it has chosen.
  std::uint8_t chosen = 0;
};

/// At most so many addresses are offered.
inline constexpr std::size_t kMostOffered = 32;

Blob encode(const Offer& offer);
/// Throws CorruptionError.
Offer decode_offer(WorldRank peer, std::span<const std::byte> told);

}  // namespace mccl::transport::rdma
