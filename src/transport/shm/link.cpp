#include "transport/shm/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "mccl/error.h"

namespace mccl::transport::shm {
namespace {

/// Approximate number of bytes that an end copies between two updates of the ring's counts, so that
/// writer and reader copy concurrently.
constexpr std::size_t kGrain = std::size_t{32} << 10;

/// Layout of the range of shared memory that a link uses: one page with the states of both rings,
/// then the rings. The first cache line of the range belongs to the arena.
struct States {
  RingState to_joiner;
  RingState to_maker;
};
static_assert(sizeof(States) + node::kLine <= 4096);

std::size_t range_bytes(std::size_t ring_bytes) { return page_bytes() + 2 * ring_bytes; }

/// Returns the size of each ring in a range of `bytes`, which include the arena's cache line.
/// Returns 0 if no link has a range of that size.
std::size_t ring_bytes_of(std::size_t bytes) {
  if (bytes < range_bytes(ShmLink::kLeastRingBytes)) return 0;
  const std::size_t ring = (bytes - page_bytes()) / 2;
  const bool one_of_ours = std::has_single_bit(ring) && ring <= ShmLink::kUsualRingBytes;
  return one_of_ours && ring % page_bytes() == 0 ? ring : 0;
}

States& states_of(std::span<std::byte> memory) { return *reinterpret_cast<States*>(memory.data()); }

std::span<std::byte> memory_of(const std::variant<node::Range, node::PeerRange>& memory) {
  return std::visit([](const auto& range) { return range.memory(); }, memory);
}

node::Mapping map_ring(const Descriptor& file, const node::RangePlace& place, std::size_t index) {
  const std::size_t ring = ring_bytes_of(place.bytes);
  return node::Mapping::twice(file, place.offset + page_bytes() + index * ring, ring);
}

/// Returns the number of unread bytes in the ring. One of the counts comes from another process, so
/// an impossible difference throws CorruptionError instead of being used as a length.
std::size_t filled(std::uint64_t written, std::uint64_t taken, std::size_t capacity) {
  const std::uint64_t between = written - taken;
  if (between > capacity)
    throw CorruptionError("shared memory: a peer's counters of written and read bytes are corrupt");
  return static_cast<std::size_t>(between);
}

}  // namespace

std::unique_ptr<ShmLink> ShmLink::make(node::Arena& arena, std::size_t ring_bytes, node::Bell bell,
                                       std::string peer, node::PeerMemory memory) {
  node::Range range;
  for (; !range && ring_bytes >= kLeastRingBytes; ring_bytes /= 2) {
    range = arena.allocate(range_bytes(ring_bytes) - node::kLine, 1);
  }
  if (!range) return nullptr;
  new (range.memory().data()) States;
  const node::RangePlace place = range.place();
  return std::unique_ptr<ShmLink>(
      new ShmLink(std::move(range), place, arena.file(), true, bell, std::move(peer), memory));
}

std::unique_ptr<ShmLink> ShmLink::join(const node::PeerArena& arena, const node::RangePlace& place,
                                       node::Bell bell, std::string peer, node::PeerMemory memory) {
  node::PeerRange range = arena.map(place);
  if (ring_bytes_of(place.bytes) == 0) {
    throw CorruptionError(
        fmt::format("shared memory: {} offers a link of {} bytes, which is not a valid size", peer,
                    place.bytes));
  }
  return std::unique_ptr<ShmLink>(
      new ShmLink(std::move(range), place, arena.file(), false, bell, std::move(peer), memory));
}

ShmLink::ShmLink(Memory memory, node::RangePlace place, const Descriptor& file, bool maker,
                 node::Bell bell, std::string peer, node::PeerMemory peer_memory)
    : memory_(std::move(memory)),
      place_(place),
      ring_bytes_(ring_bytes_of(place.bytes)),
      first_ring_(map_ring(file, place, 0)),
      second_ring_(map_ring(file, place, 1)),
      out_(maker ? states_of(memory_of(memory_)).to_joiner : states_of(memory_of(memory_)).to_maker,
           maker ? first_ring_.data() : second_ring_.data(), ring_bytes_),
      in_(maker ? states_of(memory_of(memory_)).to_maker : states_of(memory_of(memory_)).to_joiner,
          maker ? second_ring_.data() : first_ring_.data(), ring_bytes_),
      peer_memory_(peer_memory),
      bell_(bell),
      peer_(std::move(peer)) {
  if (peer_memory_) in_.can_read_memory();
}

ShmLink::~ShmLink() {
  out_.leave();
  in_.leave();
  bell_.ring();
}

void ShmLink::fail() const {
  throw LinkClosed(fmt::format(
      "lost the connection to {}: it {} ({})", peer_,
      peer_gone_ ? "has ended, or stopped responding" : "has closed its end", description()));
}

std::size_t ShmLink::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (peer_gone_ || out_.reader_left()) fail();
  std::size_t written = 0;
  while (!first.empty() || !second.empty()) {
    const auto a = first.first(std::min(first.size(), kGrain));
    const auto b = second.first(a.size() < first.size() ? 0 : std::min(second.size(), kGrain));
    const std::size_t n = out_.write(a, b);
    if (n != 0) bell_.ring();
    written += n;
    if (n < a.size() + b.size()) break;
    first = first.subspan(a.size());
    second = second.subspan(b.size());
  }
  return written;
}

std::span<const std::byte> ShmLink::arrived(std::size_t at_least) {
  std::span<const std::byte> bytes = in_.peek();
  if (bytes.size() >= at_least) return bytes;
  if (!peer_gone_ && !in_.writer_left()) return {};
  // The writer may have written more bytes before it left.
  bytes = in_.peek();
  if (bytes.size() < at_least) fail();
  return bytes;
}

std::span<const std::byte> ShmLink::peek(std::size_t at_least) {
  if (at_least > ring_bytes_) {
    throw InvalidArgument(fmt::format("cannot peek at {} bytes: the buffer holds at most {} ({})",
                                      at_least, ring_bytes_, description()));
  }
  return arrived(std::max<std::size_t>(at_least, 1));
}

void ShmLink::consume(std::size_t n) {
  if (n > in_.seen()) {
    throw InvalidArgument(fmt::format("cannot consume {} bytes: only {} are available ({})", n,
                                      in_.seen(), description()));
  }
  if (n == 0) return;
  in_.consume(n);
  bell_.ring();
}

std::size_t ShmLink::peek_capacity() const { return ring_bytes_; }

std::size_t ShmLink::read(std::span<std::byte> destination) {
  if (destination.empty()) return 0;
  const std::span<const std::byte> bytes = arrived(1);
  const std::size_t n = std::min(bytes.size(), destination.size());
  for (std::size_t at = 0; at < n; at += kGrain) {
    const std::size_t piece = std::min(kGrain, n - at);
    std::memcpy(destination.data() + at, bytes.data() + at, piece);
    consume(piece);
  }
  return n;
}

bool ShmLink::read_peer(std::uint64_t address, std::span<std::byte> to) {
  const bool copied = peer_memory_.read(address, to) == 0;
  // The fence orders the copy before the check: a peer that frees the bytes marks its end first.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (in_.writer_left()) fail();
  return copied;
}

void ShmLink::withdraw_memory() noexcept {
  out_.leave();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bell_.ring();
}

std::string ShmLink::description() const {
  return fmt::format("shared memory at offset {}, with {}", place_.offset, peer_);
}

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
