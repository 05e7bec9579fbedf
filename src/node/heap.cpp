#include "node/heap.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>

#include "base/machine.h"
#include "mccl/error.h"
#include "node/arena.h"

namespace mccl::node {

Heap::Heap(const Descriptor& file, std::size_t offset, std::size_t bytes)
    : file_(file), offset_(offset), bytes_(bytes), free_(offset, bytes) {}

std::byte* Heap::allocate(std::size_t bytes) {
  if (::getpid() != process_) {
    throw Error(
        "shared memory: a process that was forked after its job met cannot allocate memory that "
        "its neighbours read; allocate in the parent");
  }
  if (bytes > bytes_) {
    throw Error(
        fmt::format("shared memory: cannot allocate {} bytes; the machine has {}", bytes, bytes_));
  }
  const std::lock_guard lock(mutex_);
  if (!map()) return nullptr;
  const std::size_t offset = take(whole_pages(std::max<std::size_t>(bytes, 1)));
  return base_.load(std::memory_order_relaxed) + (offset - offset_);
}

/// Maps the heap at the first call. Its pages are allocated one by one, so the size of the mapping
/// costs address space only. Returns false if this process has too little of it.
bool Heap::map() {
  if (mapping_.data()) return true;
  try {
    mapping_ = {file_, offset_, bytes_, SparseMapping::Access::read_and_write};
  } catch (const Error&) {
    return false;
  }
  base_.store(mapping_.data(), std::memory_order_release);
  return true;
}

std::size_t Heap::take(std::size_t bytes) {
  // Reserves the memory that a later release needs.
  free_.reserve(taken_.size() + spare_.size() + 1);
  spare_.reserve(taken_.size() + spare_.size() + 1);
  std::size_t offset = 0;
  if (!take_spare(bytes, offset) && !take_new(bytes, offset)) {
    shrink_spare(0);
    if (!take_new(bytes, offset)) {
      throw Error(
          fmt::format("shared memory: cannot allocate {} bytes; {} bytes are in use; free memory, "
                      "or raise the memory limit of the container",
                      bytes, taken_bytes_));
    }
  }
  taken_bytes_ += bytes;
  return offset;
}

/// Takes the kept memory of this size that was freed last, which is the most likely to be in a
/// cache.
bool Heap::take_spare(std::size_t bytes, std::size_t& offset) {
  const auto found = std::find_if(spare_.rbegin(), spare_.rend(),
                                  [bytes](const Block& spare) { return spare.bytes == bytes; });
  if (found == spare_.rend()) return false;
  offset = found->offset;
  taken_.emplace(offset, bytes);
  spare_.erase(std::next(found).base());
  spare_bytes_ -= bytes;
  return true;
}

bool Heap::take_new(std::size_t bytes, std::size_t& offset) {
  const std::optional<std::size_t> found = free_.take(bytes);
  if (!found) return false;
  if (!change_memory(file_, MemoryChange::reserve, *found, bytes) ||
      !mapping_.open(*found - offset_, bytes)) {
    static_cast<void>(change_memory(file_, MemoryChange::discard, *found, bytes));
    free_.give_back(*found, bytes);
    return false;
  }
  offset = *found;
  taken_.emplace(offset, bytes);
  return true;
}

void Heap::release(std::byte* memory) noexcept {
  if (!memory || ::getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(static_cast<std::size_t>(memory - mapping_.data()) + offset_);
  if (found == taken_.end()) return;
  const Block block{found->first, found->second};
  taken_.erase(found);
  spare_.push_back(block);
  taken_bytes_ -= block.bytes;
  spare_bytes_ += block.bytes;
  shrink_spare(most_spare_);
}

void Heap::keep_no_spare() noexcept {
  if (::getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  most_spare_ = 0;
  shrink_spare(0);
}

/// Returns the oldest kept memory to the system, until at most `most` bytes are kept. If the
/// system refuses, the pages stay allocated until the range is used again.
void Heap::shrink_spare(std::size_t most) noexcept {
  auto kept = spare_.begin();
  for (; kept != spare_.end() && spare_bytes_ > most; ++kept) {
    static_cast<void>(change_memory(file_, MemoryChange::discard, kept->offset, kept->bytes));
    free_.give_back(kept->offset, kept->bytes);
    spare_bytes_ -= kept->bytes;
  }
  spare_.erase(spare_.begin(), kept);
}

std::uint64_t Heap::place_of(const void* memory, std::size_t bytes) const noexcept {
  const std::byte* const base = base_.load(std::memory_order_acquire);
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  if (!base || at < begin || at - begin >= bytes_ || bytes > bytes_ - (at - begin)) return 0;
  return offset_ + (at - begin);
}

std::size_t Heap::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_bytes_;
}

std::size_t Heap::spare() const {
  const std::lock_guard lock(mutex_);
  return spare_bytes_;
}

std::size_t heap_bytes() {
#ifdef __linux__
  return has_limited_address_space() ? 0 : memory_bytes();
#else
  return 0;
#endif
}

std::shared_ptr<std::byte> allocate(const std::shared_ptr<Arena>& arena, std::size_t bytes) {
  Heap* const heap = arena ? arena->heap() : nullptr;
  if (std::byte* const memory = heap ? heap->allocate(bytes) : nullptr)
    return {memory, [arena, heap](std::byte* shared) { heap->release(shared); }};
  const std::align_val_t page{page_bytes()};
  void* const memory = ::operator new(std::max<std::size_t>(bytes, 1), page, std::nothrow);
  if (!memory) throw Error(fmt::format("cannot allocate {} bytes", bytes));
  return {static_cast<std::byte*>(memory),
          [page](std::byte* ordinary) { ::operator delete(ordinary, page); }};
}

}  // namespace mccl::node
