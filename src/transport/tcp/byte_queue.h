// A queue of bytes in one piece of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

namespace mccl::transport::tcp {

/// Bytes are added at the end and taken from the beginning. Only compact() and grow() move bytes.
class ByteQueue {
 public:
  explicit ByteQueue(std::size_t capacity)
      : bytes_(std::make_unique_for_overwrite<std::byte[]>(capacity)), capacity_(capacity) {}

  std::size_t capacity() const { return capacity_; }
  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  std::span<const std::byte> bytes() const { return {bytes_.get() + begin_, size()}; }

  /// The memory behind the last byte, for bytes that add() then counts.
  std::span<std::byte> space() { return {bytes_.get() + end_, capacity_ - end_}; }
  void add(std::size_t count) { end_ += count; }
  void take(std::size_t count) { begin_ += count; }

  /// Moves the bytes to the beginning of the memory, so that space() is as large as possible.
  void compact() {
    if (begin_ > 0) std::memmove(bytes_.get(), bytes_.get() + begin_, size());
    end_ = size();
    begin_ = 0;
  }
  /// Throws std::bad_alloc, without a change, if memory runs out.
  void grow(std::size_t capacity) {
    ByteQueue larger(std::max(capacity, capacity_));
    std::memcpy(larger.bytes_.get(), bytes().data(), size());
    larger.end_ = size();
    *this = std::move(larger);
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t capacity_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace mccl::transport::tcp
