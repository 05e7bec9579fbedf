#include "transport/rdma/offer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace mccl::transport::rdma {
namespace {

constexpr std::uint32_t kMagic = 0x6d726431;     // "mrd1"
constexpr std::uint32_t kMostNumber = 0xffffff;  // Largest number of a queue pair or packet.

struct OnWire {
  std::uint32_t magic = kMagic;
  std::uint8_t is_answer = 0;
  std::uint8_t service = 0;
  std::uint8_t layer = 0;
  std::uint8_t chosen = 0;
  std::uint64_t token = 0;
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;
  std::uint32_t depth = 0;
  std::uint32_t slot_bytes = 0;
  std::uint32_t mtu_bytes = 0;
  std::uint16_t lid = 0;
  std::uint16_t gids = 0;
};
static_assert(sizeof(OnWire) == 40);

struct GidOnWire {
  std::uint32_t index = 0;
  std::uint32_t type = 0;
  GidBytes bytes{};
};
static_assert(sizeof(GidOnWire) == 24);
static_assert(sizeof(OnWire) + kMostOffered * sizeof(GidOnWire) <= kMostBlobBytes);

bool is_possible(const OnWire& wire, std::size_t bytes) {
  return wire.magic == kMagic && wire.is_answer <= 1 && wire.service <= 1 && wire.layer <= 2 &&
         wire.queue_pair <= kMostNumber && wire.first_packet <= kMostNumber &&
         rdma::is_possible(SlotShape{wire.depth, wire.slot_bytes}) && wire.mtu_bytes >= 256 &&
         wire.mtu_bytes <= 4096 && wire.gids >= 1 && wire.gids <= kMostOffered &&
         bytes == sizeof(OnWire) + wire.gids * sizeof(GidOnWire);
}

}  // namespace

Blob encode(const Offer& offer) {
  OnWire wire;
  wire.is_answer = offer.is_answer ? 1 : 0;
  wire.service = static_cast<std::uint8_t>(offer.service);
  wire.layer = static_cast<std::uint8_t>(offer.layer);
  wire.chosen = offer.chosen;
  wire.token = offer.end.token;
  wire.queue_pair = offer.queue_pair;
  wire.first_packet = offer.first_packet;
  wire.depth = offer.end.shape.depth;
  wire.slot_bytes = offer.end.shape.slot_bytes;
  wire.mtu_bytes = static_cast<std::uint32_t>(offer.mtu_bytes);
  wire.lid = offer.lid;
  wire.gids = static_cast<std::uint16_t>(std::min(offer.gids.size(), kMostOffered));
  Blob blob(sizeof wire + wire.gids * sizeof(GidOnWire));
  std::memcpy(blob.data(), &wire, sizeof wire);
  for (std::size_t i = 0; i < wire.gids; ++i) {
    const Gid& gid = offer.gids[i];
    const GidOnWire one{static_cast<std::uint32_t>(gid.index), static_cast<std::uint32_t>(gid.type),
                        gid.bytes};
    std::memcpy(blob.data() + sizeof wire + i * sizeof one, &one, sizeof one);
  }
  return blob;
}

Offer decode_offer(WorldRank peer, std::span<const std::byte> told) {
  OnWire wire;
  if (told.size() >= sizeof wire) std::memcpy(&wire, told.data(), sizeof wire);
  if (told.size() < sizeof wire || !is_possible(wire, told.size())) {
    throw CorruptionError(fmt::format(
        "rank {} sent an invalid description of a queue pair, of {} bytes", peer, told.size()));
  }
  Offer offer;
  offer.is_answer = wire.is_answer == 1;
  offer.service = static_cast<Service>(wire.service);
  offer.layer = static_cast<LinkLayer>(wire.layer);
  offer.chosen = wire.chosen;
  offer.queue_pair = wire.queue_pair;
  offer.first_packet = wire.first_packet;
  offer.end = {wire.token, {wire.depth, wire.slot_bytes}};
  offer.mtu_bytes = static_cast<int>(wire.mtu_bytes);
  offer.lid = wire.lid;
  for (std::size_t i = 0; i < wire.gids; ++i) {
    GidOnWire one;
    std::memcpy(&one, told.data() + sizeof wire + i * sizeof one, sizeof one);
    if (one.type > static_cast<std::uint32_t>(GidType::roce_v2) || one.index > 0xffff) {
      throw CorruptionError(fmt::format("rank {} names an address of unknown kind", peer));
    }
    offer.gids.push_back({static_cast<int>(one.index), static_cast<GidType>(one.type), one.bytes});
  }
  return offer;
}

}  // namespace mccl::transport::rdma
