#include "transport/shm/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "mccl/error.h"

namespace mccl::transport::shm {
namespace {

/// The first line of a range: how many readers have not let go of it.
using Readers = std::atomic<std::uint32_t>;

Readers& readers_of(const Mapping& mapping) { return *reinterpret_cast<Readers*>(mapping.data()); }

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace

Range::~Range() {
  if (arena_) arena_->retired_.push_back(place_);
}

Range& Range::operator=(Range&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(place_, other.place_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

std::span<std::byte> Range::memory() const {
  return {mapping_.data() + kLine, mapping_.size() - kLine};
}

std::shared_ptr<Arena> Arena::make(std::size_t capacity) {
  return std::shared_ptr<Arena>(new Arena(std::max(whole_pages(capacity), page_bytes())));
}

Arena::Arena(std::size_t capacity)
    : capacity_(capacity), file_(make_memory_file(capacity)), end_(page_bytes()) {
  if (!reserve_memory(file_, 0, page_bytes())) {
    throw Error("shared memory: the system has not even a page of it left");
  }
  first_page_ = Mapping::of(file_, 0, page_bytes());
  new (first_page_.data()) ArenaHeader;
}

bool Arena::find_place(std::size_t bytes, RangePlace& place) {
  for (auto it = retired_.begin(); it != retired_.end(); ++it) {
    if (it->bytes != bytes) continue;
    const Mapping look = Mapping::of(file_, it->offset, page_bytes());
    if (readers_of(look).load(std::memory_order_acquire) != 0) continue;
    place = *it;
    retired_.erase(it);
    return true;
  }
  if (bytes > capacity_ - end_ || !reserve_memory(file_, end_, bytes)) return false;
  place = {end_, bytes};
  end_ += bytes;
  taken_ += bytes;
  return true;
}

Range Arena::allocate(std::size_t bytes, std::uint32_t readers) {
  Range range;
  if (!find_place(whole_pages(bytes + kLine), range.place_)) return range;
  try {
    range.mapping_ = Mapping::of(file_, range.place_.offset, range.place_.bytes);
  } catch (const Error&) {
    retired_.push_back(std::exchange(range.place_, {}));
    return range;
  }
  range.arena_ = shared_from_this();
  std::memset(range.mapping_.data(), 0, range.mapping_.size());
  new (range.mapping_.data()) Readers(readers);
  return range;
}

PeerRange::~PeerRange() {
  if (mapping_.data()) readers_of(mapping_).fetch_sub(1, std::memory_order_release);
}

std::span<std::byte> PeerRange::memory() const {
  return {mapping_.data() + kLine, mapping_.size() - kLine};
}

PeerArena::PeerArena(Descriptor file) : file_(std::move(file)), size_(size_of_memory_file(file_)) {
  if (size_ < page_bytes()) throw Error("shared memory: a peer's is too small to be an arena");
  first_page_ = Mapping::of(file_, 0, page_bytes());
  if (header().magic != ArenaHeader::kMagic) {
    throw Error("shared memory: what a peer passed is no arena of this version");
  }
}

PeerRange PeerArena::map(const RangePlace& place) const {
  // The first page is the arena's own.
  if (place.offset % page_bytes() != 0 || place.bytes % page_bytes() != 0 || place.bytes == 0 ||
      place.offset == 0 || place.bytes > size_ || place.offset > size_ - place.bytes) {
    throw CorruptionError(
        fmt::format("shared memory: a peer names {} bytes at {} of an arena of {} bytes",
                    place.bytes, place.offset, size_));
  }
  PeerRange range;
  range.mapping_ = Mapping::of(file_, place.offset, place.bytes);
  range.place_ = place;
  return range;
}

}  // namespace mccl::transport::shm
