#include "transport/shm/ring.h"

#include <algorithm>
#include <cstring>

#include "mccl/error.h"

namespace mccl::transport::shm {
namespace {

/// Returns how many bytes of the ring are full. The counts are written by another process, so an
/// impossible difference throws CorruptionError instead of being used as a length.
std::size_t filled(std::uint64_t written, std::uint64_t taken, std::size_t capacity) {
  const std::uint64_t between = written - taken;
  if (between > capacity) throw CorruptionError("shared memory: a peer's ring counts are corrupt");
  return static_cast<std::size_t>(between);
}

}  // namespace

std::size_t RingWriter::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  const std::size_t wanted = first.size() + second.size();
  if (capacity_ - filled(written_, taken_, capacity_) < wanted) {
    taken_ = state_->taken.load(std::memory_order_acquire);
  }
  const std::size_t room = capacity_ - filled(written_, taken_, capacity_);
  const std::size_t of_first = std::min(first.size(), room);
  const std::size_t of_second = std::min(second.size(), room - of_first);
  if (of_first + of_second == 0) return 0;
  std::byte* to = bytes_ + written_ % capacity_;
  if (of_first != 0) std::memcpy(to, first.data(), of_first);
  if (of_second != 0) std::memcpy(to + of_first, second.data(), of_second);
  written_ += of_first + of_second;
  state_->written.store(written_, std::memory_order_release);
  return of_first + of_second;
}

std::span<const std::byte> RingReader::peek() const {
  const std::uint64_t written = state_->written.load(std::memory_order_acquire);
  const std::size_t there = filled(written, taken_, capacity_);
  seen_ = taken_ + there;
  return {bytes_ + taken_ % capacity_, there};
}

void RingReader::consume(std::size_t n) {
  taken_ += n;
  state_->taken.store(taken_, std::memory_order_release);
}

}  // namespace mccl::transport::shm
