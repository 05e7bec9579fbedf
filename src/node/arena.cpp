#include "node/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "mccl/error.h"

namespace mccl::node {
namespace {

/// Number of readers that have not released a range. Stored in the range's first cache line.
using Readers = std::atomic<std::uint32_t>;

Readers& readers_of(const Mapping& mapping) { return *reinterpret_cast<Readers*>(mapping.data()); }

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace

Range::~Range() {
  if (arena_) arena_->retired_.push_back({place_, std::move(mapping_)});
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

Arena::Arena(std::size_t capacity) : capacity_(capacity), file_(make_memory_file(capacity)) {
  if (!reserve_memory(file_, 0, page_bytes())) {
    throw Error("shared memory: the system has not one page of it left");
  }
  first_page_ = Mapping::of(file_, 0, page_bytes());
  new (first_page_.data()) ArenaHeader;
  if (capacity_ > page_bytes()) free_.push_back({page_bytes(), capacity_ - page_bytes()});
}

void Arena::collect() noexcept {
  std::erase_if(retired_, [this](Retired& retired) {
    if (readers_of(retired.mapping).load(std::memory_order_acquire) != 0) return false;
    const RangePlace place = retired.place;
    if (spare_bytes_ + place.bytes <= kSpareBytes) {
      spare_bytes_ += place.bytes;
      spare_.push_back(std::move(retired));
    } else if (!discard(place)) {
      return false;
    }
    taken_ -= place.bytes;
    return true;
  });
}

/// Returns the memory to the system. Returns false if the system refused.
bool Arena::discard(const RangePlace& place) noexcept {
  if (!discard_memory(file_, place.offset, place.bytes)) return false;
  give_back(place);
  return true;
}

/// Returns true if at least one spare range was released.
bool Arena::release_spares() noexcept {
  const std::size_t before = spare_.size();
  std::erase_if(spare_, [this](const Retired& spare) {
    if (!discard(spare.place)) return false;
    spare_bytes_ -= spare.place.bytes;
    return true;
  });
  return spare_.size() < before;
}

/// Merges the place with adjacent free places.
void Arena::give_back(RangePlace place) noexcept {
  --ranges_;
  auto after = std::lower_bound(
      free_.begin(), free_.end(), place.offset,
      [](const RangePlace& free, std::uint64_t offset) { return free.offset < offset; });
  if (after != free_.end() && place.offset + place.bytes == after->offset) {
    place.bytes += after->bytes;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    RangePlace& before = *std::prev(after);
    if (before.offset + before.bytes == place.offset) {
      before.bytes += place.bytes;
      return;
    }
  }
  free_.insert(after, place);
}

/// Takes the smallest free place that is large enough (the first, if several have that size), so
/// that small ranges fill the gaps.
bool Arena::find_place(std::size_t bytes, RangePlace& place) {
  const auto better = [bytes](const RangePlace& one, const RangePlace& other) {
    if (one.bytes < bytes || other.bytes < bytes) return one.bytes >= bytes;
    return one.bytes < other.bytes;
  };
  const auto best = std::min_element(free_.begin(), free_.end(), better);
  if (best == free_.end() || best->bytes < bytes) return false;
  if (!reserve_memory(file_, best->offset, bytes)) return false;
  place = {best->offset, bytes};
  best->offset += bytes;
  best->bytes -= bytes;
  if (best->bytes == 0) free_.erase(best);
  ++ranges_;
  return true;
}

bool Arena::take_new(std::size_t bytes, Range& range) {
  if (!find_place(bytes, range.place_)) return false;
  try {
    range.mapping_ = Mapping::of(file_, range.place_.offset, bytes);
  } catch (const std::exception&) {
    give_back(range.place_);
    return false;
  }
  return true;
}

bool Arena::take_spare(std::size_t bytes, Range& range) {
  const auto found = std::find_if(spare_.begin(), spare_.end(), [bytes](const Retired& spare) {
    return spare.place.bytes == bytes;
  });
  if (found == spare_.end()) return false;
  range.place_ = found->place;
  range.mapping_ = std::move(found->mapping);
  spare_.erase(found);
  spare_bytes_ -= bytes;
  return true;
}

Range Arena::allocate(std::size_t bytes, std::uint32_t readers, std::size_t cleared) {
  collect();
  // At most one free place precedes each range, and one follows the last.
  free_.reserve(ranges_ + 2);
  retired_.reserve(ranges_ + 1);
  spare_.reserve(ranges_ + 1);
  const std::size_t whole = whole_pages(bytes + kLine);
  Range range;
  const bool taken = take_spare(whole, range) || take_new(whole, range) ||
                     (release_spares() && take_new(whole, range));
  if (!taken) return {};
  taken_ += whole;
  range.arena_ = shared_from_this();
  std::memset(range.memory().data(), 0, std::min(cleared, range.memory().size()));
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
  if (size_ < page_bytes())
    throw Error("shared memory: a peer's memory is too small to be an arena");
  first_page_ = Mapping::of(file_, 0, page_bytes());
  if (header().magic != ArenaHeader::kMagic) {
    throw Error("shared memory: a peer's memory is not an arena of this version");
  }
}

void PeerArena::check(const RangePlace& place) const {
  // The first page belongs to the arena itself.
  if (place.offset % page_bytes() != 0 || place.bytes % page_bytes() != 0 || place.bytes == 0 ||
      place.offset == 0 || place.bytes > size_ || place.offset > size_ - place.bytes) {
    throw CorruptionError(
        fmt::format("shared memory: a peer names {} bytes at offset {} of an arena of {} bytes",
                    place.bytes, place.offset, size_));
  }
}

PeerRange PeerArena::map(const RangePlace& place) const {
  check(place);
  PeerRange range;
  range.mapping_ = Mapping::of(file_, place.offset, place.bytes);
  range.place_ = place;
  return range;
}

void PeerArena::let_go_of(const RangePlace& place) const {
  if (place.bytes == 0) return;
  try {
    static_cast<void>(map(place));
  } catch (const CorruptionError&) {
    throw;
  } catch (const std::exception&) {
    // The range stays in use.
  }
}

}  // namespace mccl::node
