// A Link through shared memory: one ring per direction, in a range of one side's arena.
//
// It has no descriptor: a side that waits uses the sleep and wake-up protocol of node/bell.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "node/arena.h"
#include "node/bell.h"
#include "transport/link.h"
#include "transport/shm/ring.h"

namespace mccl::transport::shm {

class ShmLink final : public Link {
 public:
  /// Preferred size of each ring: large enough that a writer seldom waits, small enough for the
  /// cache.
  static constexpr std::size_t kUsualRingBytes = std::size_t{256} << 10;
  static constexpr std::size_t kLeastRingBytes = std::size_t{16} << 10;

  /// Allocates a range for a new link. The caller must send its place() to the other side.
  /// `ring_bytes` is a power of two; the rings are smaller if memory runs out. Returns null if even
  /// rings of kLeastRingBytes do not fit. `bell` wakes the peer; `peer` is its name in messages:
  /// "rank 3".
  static std::unique_ptr<ShmLink> make(node::Arena& arena, std::size_t ring_bytes, node::Bell bell,
                                       std::string peer);
  /// Attaches to a range that the peer has made. Throws CorruptionError if `place` is invalid.
  static std::unique_ptr<ShmLink> join(const node::PeerArena& arena, const node::RangePlace& place,
                                       node::Bell bell, std::string peer);
  ~ShmLink() override;

  node::RangePlace place() const { return place_; }

  std::size_t write(std::span<const std::byte> first,
                    std::span<const std::byte> second = {}) override;
  std::span<const std::byte> peek(std::size_t at_least) override;
  void consume(std::size_t n) override;
  std::size_t peek_capacity() const override;
  std::size_t read(std::span<std::byte> destination) override;
  int descriptor() const override { return -1; }
  std::size_t unsent() const override { return 0; }  // Written bytes stay readable.
  void lose_peer(Loss) override { peer_gone_ = true; }
  std::string description() const override;

 private:
  using Memory = std::variant<node::Range, node::PeerRange>;

  ShmLink(Memory memory, node::RangePlace place, const Descriptor& file, bool maker,
          node::Bell bell, std::string peer);
  /// Returns the readable bytes if there are at least `at_least`; else an empty span. Throws
  /// LinkClosed if fewer have arrived and no more can arrive.
  std::span<const std::byte> arrived(std::size_t at_least);
  [[noreturn]] void fail() const;

  Memory memory_;
  const node::RangePlace place_;
  const std::size_t ring_bytes_;
  const node::Mapping first_ring_;  // Carries bytes from the maker of the range to the joiner.
  const node::Mapping second_ring_;
  RingWriter out_;
  RingReader in_;
  const node::Bell bell_;
  const std::string peer_;
  bool peer_gone_ = false;
};

}  // namespace mccl::transport::shm
