#include "node/arena.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <optional>
#include <random>
#include <utility>

#include "mccl/error.h"

namespace mccl::node {
namespace {

/// Number of readers that have not released a range. Stored in the range's first cache line.
using Readers = std::atomic<std::uint32_t>;

Readers& readers_of(const Mapping& mapping) { return *reinterpret_cast<Readers*>(mapping.data()); }

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

std::shared_ptr<Arena> Arena::make(std::size_t capacity, std::size_t heap) {
  capacity = std::max(whole_pages(capacity), page_bytes());
  heap = whole_pages(heap);
  if (heap > largest_file() || capacity > largest_file() - heap) heap = 0;
  return std::shared_ptr<Arena>(new Arena(capacity, heap));
}

Arena::Arena(std::size_t capacity, std::size_t heap)
    : capacity_(capacity),
      file_(make_memory_file(capacity + heap)),
      free_(page_bytes(), capacity - page_bytes()) {
  if (!change_memory(file_, MemoryChange::reserve, 0, page_bytes())) {
    throw Error(
        "shared memory: the system has no free page left; free memory, or raise the "
        "memory limit of the container");
  }
  first_page_ = Mapping::of(file_, 0, page_bytes());
  auto& header = *new (first_page_.data()) ArenaHeader;
  header.address = reinterpret_cast<std::uintptr_t>(&header);
  std::random_device random;
  header.token = std::uint64_t{random()} << 32 | random();
  header.heap = capacity;
  if (heap > 0) heap_.emplace(file_, capacity, heap);
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

/// Gives the memory of a range back to the system. Returns false if the system refuses.
bool Arena::discard(const RangePlace& place) noexcept {
  if (!change_memory(file_, MemoryChange::discard, place.offset, place.bytes)) return false;
  --ranges_;
  free_.give_back(place.offset, place.bytes);
  return true;
}

/// Gives spare ranges back to the system. Returns true if at least one was given back.
bool Arena::release_spares() noexcept {
  const std::size_t before = spare_.size();
  std::erase_if(spare_, [this](const Retired& spare) {
    if (!discard(spare.place)) return false;
    spare_bytes_ -= spare.place.bytes;
    return true;
  });
  return spare_.size() < before;
}

bool Arena::take_new(std::size_t bytes, Range& range) {
  const std::optional<std::size_t> offset = free_.take(bytes);
  if (!offset) return false;
  range.place_ = {*offset, bytes};
  try {
    if (change_memory(file_, MemoryChange::reserve, *offset, bytes)) {
      range.mapping_ = Mapping::of(file_, *offset, bytes);
      ++ranges_;
      return true;
    }
  } catch (const std::exception&) {
    // This process has no address space left for the range.
  }
  free_.give_back(*offset, bytes);
  return false;
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
  // Reserves the memory that a later release needs.
  free_.reserve(ranges_ + 1);
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
  if (size_ < page_bytes()) throw Error("shared memory: a peer's memory is smaller than a page");
  first_page_ = Mapping::of(file_, 0, page_bytes());
  if (header().magic != ArenaHeader::kMagic) {
    throw Error(
        "shared memory: a peer's memory was not made by this version of MCCL; "
        "install the same version for all processes of this host");
  }
  heap_begin_ = header().heap;
  if (heap_begin_ > size_ || heap_begin_ % page_bytes() != 0)
    throw CorruptionError("shared memory: a peer's memory has an invalid header");
}

SparseMapping& PeerArena::heap() const {
  if (heap_bytes() > 0 && !heap_.data())
    heap_ = {file_, heap_begin_, heap_bytes(), SparseMapping::Access::read};
  return heap_;
}

void PeerArena::check(const RangePlace& place) const {
  // The first page belongs to the arena itself.
  if (place.offset % page_bytes() != 0 || place.bytes % page_bytes() != 0 || place.bytes == 0 ||
      place.offset == 0 || place.bytes > heap_begin_ || place.offset > heap_begin_ - place.bytes) {
    throw CorruptionError(
        fmt::format("shared memory: a peer sent an invalid range: {} bytes at offset {} of its "
                    "memory of {} bytes",
                    place.bytes, place.offset, heap_begin_));
  }
}

PeerRange PeerArena::map(const RangePlace& place) const {
  check(place);
  PeerRange range;
  range.mapping_ = Mapping::of(file_, place.offset, place.bytes);
  return range;
}

void PeerArena::let_go_of(const RangePlace& place) const {
  if (place.bytes == 0) return;
  try {
    static_cast<void>(map(place));
  } catch (const CorruptionError&) {
    throw;
  } catch (const std::exception&) {
    // This process cannot map the range, so the range stays in use.
  }
}

}  // namespace mccl::node
