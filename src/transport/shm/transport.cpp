#include "transport/shm/transport.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "transport/shm/link.h"

namespace mccl::transport::shm {
namespace {

/// Content of an offer: offset and size, in bytes, of the range in the dialing end's arena.
using PlaceOnWire = std::array<std::uint64_t, 2>;

Blob encode(const node::RangePlace& place) {
  const PlaceOnWire on_wire = {place.offset, place.bytes};
  Blob blob(sizeof on_wire);
  std::memcpy(blob.data(), on_wire.data(), blob.size());
  return blob;
}

node::RangePlace place_in(WorldRank peer, std::span<const std::byte> blob) {
  PlaceOnWire on_wire;
  if (blob.size() != sizeof on_wire) {
    throw CorruptionError(
        fmt::format("rank {} sent an invalid offer of a link in shared memory, {} bytes long", peer,
                    blob.size()));
  }
  std::memcpy(on_wire.data(), blob.data(), blob.size());
  return {on_wire[0], on_wire[1]};
}

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::shared_ptr<const node::SharedMemory> memory)
      : memory_(std::move(memory)), sleeper_(memory_->arena->header()) {}

  std::string_view name() const override { return "shm"; }
  bool reaches(WorldRank peer) const override { return memory_->neighbour(peer) != nullptr; }
  std::string describe(WorldRank) const override { return "shared memory"; }

  Making dial(WorldRank peer, const LinkKey& key, Clock::time_point) override {
    node::Arena& arena = *memory_->arena;
    const std::size_t ring =
        node::thrifty(ShmLink::kUsualRingBytes, ShmLink::kLeastRingBytes, arena);
    std::unique_ptr<ShmLink> link =
        ShmLink::make(arena, ring, memory_->neighbour(peer)->bell(), fmt::format("rank {}", peer));
    if (!link)
      throw Error(
          "no shared memory is left for a link; free memory, or raise the memory limit of the "
          "container");
    Making offer;
    offer.blob = encode(link->place());
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
    const node::RangePlace place = place_in(peer, blob);
    const node::Neighbour* neighbour = memory_->neighbour(peer);
    if (!neighbour)
      throw CorruptionError(fmt::format(
          "rank {} shares no memory with this rank, but offers a link through shared memory",
          peer));
    made.link =
        ShmLink::join(neighbour->arena, place, neighbour->bell(), fmt::format("rank {}", peer));
    made.blob = Blob();
    return made;
  }

  /// Releases the range that the peer offered. The peer counts this rank as a reader of the range,
  /// and reuses the range only after all readers have released it.
  void refuse(WorldRank peer, const LinkKey&, std::span<const std::byte> blob) override {
    if (const node::Neighbour* neighbour = memory_->neighbour(peer); neighbour && !blob.empty()) {
      neighbour->arena.let_go_of(place_in(peer, blob));
    }
  }

  void cancel(WorldRank peer, const LinkKey& key) override { offered_.erase({peer, key}); }

  bool arm() override {
    sleeper_.fall_asleep();
    return true;
  }
  void disarm() override { sleeper_.wake_up(); }

 private:
  const std::shared_ptr<const node::SharedMemory> memory_;
  node::Sleeper sleeper_;
  /// Links offered by this end that the other end has not mapped yet.
  std::map<std::pair<WorldRank, LinkKey>, std::unique_ptr<ShmLink>> offered_;
};

}  // namespace

std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<const node::SharedMemory> memory) {
  return std::make_unique<ShmTransport>(std::move(memory));
}

}  // namespace mccl::transport::shm
