// A ring of bytes between one writer and one reader, which may be different processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "node/arena.h"

namespace mccl::transport::shm {

/// State that both sides share, in the range's memory. Both counts are in bytes and only grow. The
/// bytes between them are those written and not yet read.
struct RingState {
  alignas(node::kLine) std::atomic<std::uint64_t> written{0};
  alignas(node::kLine) std::atomic<std::uint64_t> taken{0};
  alignas(node::kLine) std::atomic<std::uint32_t> writer_left{0};
  std::atomic<std::uint32_t> reader_left{0};
};

/// The writing side of a ring. `bytes` is the ring's memory mapped twice in a row, so that a piece
/// that wraps around is still contiguous.
class RingWriter {
 public:
  RingWriter(RingState& state, std::byte* bytes, std::size_t capacity)
      : state_(&state), bytes_(bytes), capacity_(capacity) {}

  /// Copies as much of `first` followed by `second` as fits; returns the number of bytes.
  std::size_t write(std::span<const std::byte> first, std::span<const std::byte> second);
  bool reader_left() const { return state_->reader_left.load(std::memory_order_acquire) != 0; }
  void leave() { state_->writer_left.store(1, std::memory_order_release); }

 private:
  RingState* state_;
  std::byte* bytes_;
  std::size_t capacity_;
  std::uint64_t written_ = 0;  // Local copy; the reader's process cannot change it.
  std::uint64_t taken_ = 0;    // Last value read from the shared state.
};

/// The reading side of a ring. `bytes` is mapped as for RingWriter.
class RingReader {
 public:
  RingReader(RingState& state, const std::byte* bytes, std::size_t capacity)
      : state_(&state), bytes_(bytes), capacity_(capacity) {}

  /// Returns all bytes that are available, in one piece.
  std::span<const std::byte> peek() const;
  /// Number of bytes of the last peek() that have not been consumed.
  std::size_t seen() const { return static_cast<std::size_t>(seen_ - taken_); }
  /// Drops the first `n` bytes; `n` is at most seen().
  void consume(std::size_t n);
  /// True if the writer has left. The next peek() then returns everything that it wrote.
  bool writer_left() const { return state_->writer_left.load(std::memory_order_acquire) != 0; }
  void leave() { state_->reader_left.store(1, std::memory_order_release); }

 private:
  RingState* state_;
  const std::byte* bytes_;
  std::size_t capacity_;
  std::uint64_t taken_ = 0;
  mutable std::uint64_t seen_ = 0;
};

}  // namespace mccl::transport::shm
