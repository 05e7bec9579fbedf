#include "transport/shm/transport.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "transport/shm/link.h"

namespace mccl::transport::shm {
namespace {

/// Content of an offer: offset and size, in bytes, of the range in the dialing end's arena, and 1
/// if messages need one copy.
using OfferOnWire = std::array<std::uint64_t, 3>;

struct LinkOffer {
  node::RangePlace place;
  bool one_copy = false;
};

Blob encode(const LinkOffer& offer) {
  const OfferOnWire on_wire = {offer.place.offset, offer.place.bytes, offer.one_copy};
  Blob blob(sizeof on_wire);
  std::memcpy(blob.data(), on_wire.data(), blob.size());
  return blob;
}

LinkOffer decode(WorldRank peer, std::span<const std::byte> blob) {
  OfferOnWire on_wire = {};
  if (blob.size() == sizeof on_wire) std::memcpy(on_wire.data(), blob.data(), blob.size());
  if (blob.size() != sizeof on_wire || on_wire[2] > 1) {
    throw CorruptionError(
        fmt::format("rank {} sent an invalid offer of a link in shared memory, {} bytes long", peer,
                    blob.size()));
  }
  return {{on_wire[0], on_wire[1]}, on_wire[2] == 1};
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(std::shared_ptr<const node::SharedMemory> memory, std::string_view cross_memory)
      : memory_(std::move(memory)),
        sleeper_(memory_->arena->header()),
        cross_memory_(cross_memory) {}

  std::string_view name() const override { return "shm"; }
  bool reaches(WorldRank peer) const override { return memory_->neighbour(peer) != nullptr; }
  std::string describe(WorldRank) const override { return "shared memory"; }

  std::vector<std::string> equal_ways(WorldRank peer) const override {
    if (cross_memory_ == "off") return {""};
    std::string obstacle = memory_->neighbour(peer)->memory().obstacle();
    if (!obstacle.empty()) return {std::move(obstacle)};
    return {"two copies", "one copy"};
  }
  void take_way(WorldRank peer, std::size_t way) override { one_copy_[peer] = way == 1; }

  Making dial(WorldRank peer, const LinkKey& key, Clock::time_point) override {
    node::Arena& arena = *memory_->arena;
    const std::size_t ring =
        node::thrifty(ShmLink::kUsualRingBytes, ShmLink::kLeastRingBytes, arena);
    const node::Neighbour& neighbour = *memory_->neighbour(peer);
    const node::PeerMemory memory =
        needs_one_copy(peer, key) ? neighbour.memory() : node::PeerMemory();
    std::unique_ptr<ShmLink> link =
        ShmLink::make(arena, ring, neighbour.bell(), fmt::format("rank {}", peer), memory);
    if (!link)
      throw Error(
          "no shared memory is left for a link; free memory, or raise the memory limit of the "
          "container");
    Making offer;
    offer.blob = encode({link->place(), static_cast<bool>(memory)});
    offered_[{peer, key}] = std::move(link);
    return offer;
  }

  /// An empty `blob` is the answer to an offer of this end. Any other `blob` is an offer of the
  /// other end.
  Making hear(WorldRank peer, const LinkKey& key, std::span<const std::byte> blob) override {
    const bool is_answer = blob.empty();
    if (is_answer != offered_.contains({peer, key})) {
      throw CorruptionError(fmt::format(
          "rank {} {}", peer,
          is_answer ? "accepts a link that was not offered"
                    : "offers a link instead of accepting the link that this rank offered"));
    }
    Making made;
    if (is_answer) {
      made.link = std::move(offered_.extract({peer, key}).mapped());
      return made;
    }
    const LinkOffer offer = decode(peer, blob);
    const node::Neighbour* neighbour = memory_->neighbour(peer);
    if (!neighbour)
      throw CorruptionError(fmt::format(
          "rank {} shares no memory with this rank, but offers a link through shared memory",
          peer));
    const bool one_copy = offer.one_copy && cross_memory_ != "off" && may_read(*neighbour);
    made.link = ShmLink::join(neighbour->arena, offer.place, neighbour->bell(),
                              fmt::format("rank {}", peer),
                              one_copy ? neighbour->memory() : node::PeerMemory());
    made.blob = Blob();
    return made;
  }

  /// Releases the range that the peer offered. The peer counts this rank as a reader of the range,
  /// and reuses the range only after all readers have released it.
  void refuse(WorldRank peer, const LinkKey&, std::span<const std::byte> blob) override {
    if (const node::Neighbour* neighbour = memory_->neighbour(peer); neighbour && !blob.empty()) {
      neighbour->arena.let_go_of(decode(peer, blob).place);
    }
  }

  void cancel(WorldRank peer, const LinkKey& key) override { offered_.erase({peer, key}); }

  bool arm() override {
    sleeper_.fall_asleep();
    return true;
  }
  void disarm() override { sleeper_.wake_up(); }

 private:
  static bool may_read(const node::Neighbour& neighbour) {
    return neighbour.memory().obstacle().empty();
  }

  bool needs_one_copy(WorldRank peer, const LinkKey& key) const {
    if (key.purpose != Purpose::point_to_point || cross_memory_ == "off") return false;
    const auto chosen = one_copy_.find(peer);
    const bool wanted = chosen == one_copy_.end() ? cross_memory_ == "on" : chosen->second;
    return wanted && may_read(*memory_->neighbour(peer));
  }

  const std::shared_ptr<const node::SharedMemory> memory_;
  node::Sleeper sleeper_;
  const std::string cross_memory_;
  std::map<WorldRank, bool> one_copy_;  ///< The ways that take_way() selected.
  /// Links offered by this end that the other end has not mapped yet.
  std::map<std::pair<WorldRank, LinkKey>, std::unique_ptr<ShmLink>> offered_;
};

}  // namespace

std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<const node::SharedMemory> memory,
                                              std::string_view cross_memory) {
  return std::make_unique<ShmTransport>(std::move(memory), cross_memory);
}

}  // namespace mccl::transport::shm
