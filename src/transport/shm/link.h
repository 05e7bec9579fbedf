// A Link through shared memory: one ring of bytes per direction, both in one range of the arena
// (memory for sharing) of one end, the maker. The other end (the joiner) maps that range.
//
// The link has no descriptor: an end that waits uses the sleep and wake-up protocol of
// node/arena.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "node/arena.h"
#include "node/peer_memory.h"
#include "transport/link.h"

namespace mccl::transport::shm {

/// State of a ring of bytes between one writer and one reader, in the memory that both share.
/// `written` and `taken` count bytes and only grow. Their difference is the number of bytes that
/// have been written and not yet read.
struct RingState {
  alignas(node::kLine) std::atomic<std::uint64_t> written{0};
  alignas(node::kLine) std::atomic<std::uint64_t> taken{0};
  alignas(node::kLine) std::atomic<std::uint32_t> writer_left{0};
  std::atomic<std::uint32_t> reader_left{0};
  /// Nonzero if the reader can copy from the memory of the writer's process.
  std::atomic<std::uint32_t> reads_memory{0};
};

/// The writing side of a ring. `bytes` is the ring's memory mapped twice in a row, so that a range
/// of bytes that wraps around is still contiguous.
class RingWriter {
 public:
  RingWriter(RingState& state, std::byte* bytes, std::size_t capacity)
      : state_(&state), bytes_(bytes), capacity_(capacity) {}

  /// Copies as much of `first` followed by `second` as fits; returns the number of bytes copied.
  std::size_t write(std::span<const std::byte> first, std::span<const std::byte> second);
  bool reader_left() const { return state_->reader_left.load(std::memory_order_acquire) != 0; }
  bool lends_memory() const { return state_->reads_memory.load(std::memory_order_relaxed) != 0; }
  void leave() { state_->writer_left.store(1, std::memory_order_release); }

 private:
  RingState* state_;
  std::byte* bytes_;
  std::size_t capacity_;
  std::uint64_t written_ = 0;  // Copy of RingState::written that the peer cannot change.
  std::uint64_t taken_ = 0;    // Value of RingState::taken that was last read.
};

/// The reading side of a ring. `bytes` is the ring's memory, mapped twice in a row (see
/// RingWriter).
class RingReader {
 public:
  RingReader(RingState& state, const std::byte* bytes, std::size_t capacity)
      : state_(&state), bytes_(bytes), capacity_(capacity) {}

  /// Returns all unread bytes, as one contiguous span.
  std::span<const std::byte> peek() const;
  /// Number of bytes of the last peek() that have not been consumed.
  std::size_t seen() const { return static_cast<std::size_t>(seen_ - taken_); }
  /// Drops the first `n` bytes; `n` is at most seen().
  void consume(std::size_t n);
  /// True if the writer has left. The next peek() then returns everything that the writer wrote.
  bool writer_left() const { return state_->writer_left.load(std::memory_order_acquire) != 0; }
  void leave() { state_->reader_left.store(1, std::memory_order_release); }
  void can_read_memory() { state_->reads_memory.store(1, std::memory_order_relaxed); }

 private:
  RingState* state_;
  const std::byte* bytes_;
  std::size_t capacity_;
  std::uint64_t taken_ = 0;
  mutable std::uint64_t seen_ = 0;
};

class ShmLink final : public Link {
 public:
  /// Preferred size of each ring in bytes: large enough that a writer seldom waits, small enough
  /// for the cache.
  static constexpr std::size_t kUsualRingBytes = std::size_t{256} << 10;
  static constexpr std::size_t kLeastRingBytes = std::size_t{16} << 10;

  /// Allocates a range for a new link. The caller must send the link's place() to the other end.
  /// `ring_bytes` is a power of two; the rings are smaller if the arena lacks memory. Returns null
  /// if even rings of kLeastRingBytes do not fit. `bell` wakes the peer. `peer` is the peer's name
  /// in messages: "rank 3". `memory`: the memory of the peer's process, if this end may read it.
  static std::unique_ptr<ShmLink> make(node::Arena& arena, std::size_t ring_bytes, node::Bell bell,
                                       std::string peer, node::PeerMemory memory = {});
  /// Attaches to a range that the peer has made. Throws CorruptionError if `place` is invalid.
  static std::unique_ptr<ShmLink> join(const node::PeerArena& arena, const node::RangePlace& place,
                                       node::Bell bell, std::string peer,
                                       node::PeerMemory memory = {});
  ~ShmLink() override;

  node::RangePlace place() const { return place_; }

  std::size_t write(std::span<const std::byte> first,
                    std::span<const std::byte> second = {}) override;
  bool sets_deadlines() const override { return false; }
  std::span<const std::byte> peek(std::size_t at_least) override;
  void consume(std::size_t n) override;
  std::size_t peek_capacity() const override;
  std::size_t read(std::span<std::byte> destination) override;
  int descriptor() const override { return -1; }
  bool lends_memory() const override { return out_.lends_memory(); }
  bool read_peer(std::uint64_t address, std::span<std::byte> to) override;
  void withdraw_memory() noexcept override;
  /// Returns 0, because the peer can read the written bytes even after this end is destroyed.
  std::size_t unsent() const override { return 0; }
  void lose_peer(Loss) override { peer_gone_ = true; }
  std::string description() const override;

 private:
  using Memory = std::variant<node::Range, node::PeerRange>;

  ShmLink(Memory memory, node::RangePlace place, const Descriptor& file, bool maker,
          node::Bell bell, std::string peer, node::PeerMemory peer_memory);
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
  const node::PeerMemory peer_memory_;
  const node::Bell bell_;
  const std::string peer_;
  bool peer_gone_ = false;
};

}  // namespace mccl::transport::shm
