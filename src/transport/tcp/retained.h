// The end of a stream of bytes, which its sender keeps so that it can send these bytes again over a
// new connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace mccl::transport::tcp {

/// Position in a stream: the number of bytes before it.
using StreamOffset = std::uint64_t;

/// Keeps the most recent bytes written to a stream. The bytes stay in the writer's memory until the
/// writer needs that memory again; only the bytes that the receiver has not acknowledged by then
/// are copied. Not thread-safe. No function throws: if memory runs out, begin() moves to end().
class Retained {
 public:
  /// Adds the first `count` bytes of `first` followed by `second`. They must stay unchanged until
  /// the next release().
  void append(std::span<const std::byte> first, std::span<const std::byte> second,
              std::size_t count) noexcept;

  /// Copies the bytes added since the last release() that are still needed. `unacknowledged`
  /// returns the number of bytes before end() that must be kept. It is called rarely for small
  /// writes, because it may make a system call.
  template <typename Count>
  void release(const Count& unacknowledged) noexcept {
    if (pieces_ > 0) copy_last(is_small() ? end_ - begin_ : unacknowledged());
  }
  /// True if release() copies all bytes without calling `unacknowledged`.
  bool is_small() const { return end_ - copied_ <= kSmallBytes && end_ - begin_ <= kTrimBytes; }
  /// Keeps no bytes.
  void drop() noexcept {
    begin_ = copied_ = end_;
    pieces_ = 0;
  }

  /// The kept bytes are those at the positions begin() to end().
  StreamOffset begin() const { return begin_; }
  StreamOffset end() const { return end_; }
  /// Returns kept bytes from `at` on: all that are contiguous in memory, and at least one unless
  /// `at` is end(). Requires begin() <= at <= end().
  std::span<const std::byte> from(StreamOffset at) const;

  /// Size in bytes of the memory for copies.
  std::size_t buffer_bytes() const { return capacity_; }

 private:
  /// Writes of at most kSmallBytes are always copied, without a system call, until kTrimBytes are
  /// kept.
  static constexpr std::size_t kSmallBytes = std::size_t{4} << 10;
  static constexpr std::size_t kTrimBytes = std::size_t{64} << 10;

  /// Drops all but the last `keep` bytes, and copies the remaining bytes that are in place.
  void copy_last(StreamOffset keep) noexcept;
  void copy(std::span<const std::byte> bytes) noexcept;
  bool make_room(std::size_t bytes) noexcept;

  StreamOffset begin_ = 0;
  /// The bytes before copied_ are in ring_, byte n at index n % capacity_. The bytes from copied_
  /// on are in in_place_.
  StreamOffset copied_ = 0;
  StreamOffset end_ = 0;
  std::unique_ptr<std::byte[]> ring_;
  std::size_t capacity_ = 0;  ///< A power of two, or 0.
  std::array<std::span<const std::byte>, 2> in_place_;
  std::size_t pieces_ = 0;  ///< Number of elements of in_place_ in use.
};

}  // namespace mccl::transport::tcp
