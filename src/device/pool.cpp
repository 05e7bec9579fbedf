#include "device/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mccl/error.h"

namespace mccl::device {
namespace {

/// Window sizes are multiples of this size in bytes, the unit in which the device allocates memory.
/// If a window shared a unit with other memory, peers could reach that memory too.
constexpr std::size_t kLeastWindow = std::size_t{2} << 20;

std::size_t rounded(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kLeastWindow - 1) / kLeastWindow) * kLeastWindow;
}

}  // namespace

/// Reuses an announced window that is not in use, if the request needs at least about half of it.
void* Pool::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  Kept* best = nullptr;
  for (Kept& kept : windows_) {
    const bool fits = kept.memory && !kept.in_use && kept.bytes >= size && kept.bytes / 2 <= size;
    if (fits && (!best || kept.bytes < best->bytes)) best = &kept;
  }
  if (!best) {
    std::shared_ptr<void> memory = accelerator_->make_memory(size);
    const auto unused = std::ranges::find_if(
        windows_, [](const Kept& kept) { return !kept.memory && !kept.pinned; });
    const auto number = static_cast<std::size_t>(unused - windows_.begin());
    if (unused == windows_.end()) windows_.emplace_back();
    begin_[static_cast<const std::byte*>(memory.get())] = number;
    best = &windows_[number];
    *best = {std::move(memory), size, false, false};
  }
  best->in_use = true;
  return best->memory.get();
}

/// Announced memory is kept, and take() may return it again, so this function waits until the
/// device no longer uses it. Other memory is freed, which also waits for the device. Both waits
/// happen without the lock.
void Pool::give_back(void* memory) {
  if (is_pinned(memory)) accelerator_->finish();
  std::shared_ptr<void> gone;
  const std::lock_guard lock(mutex_);
  Kept& kept = taken(memory);
  kept.in_use = false;
  if (kept.pinned) return;
  gone = std::move(kept.memory);
  begin_.erase(static_cast<const std::byte*>(memory));
  while (!windows_.empty() && !windows_.back().memory && !windows_.back().pinned)
    windows_.pop_back();
}

bool Pool::is_pinned(const void* memory) {
  const std::lock_guard lock(mutex_);
  return taken(memory).pinned;
}

/// The caller must hold mutex_.
Pool::Kept& Pool::taken(const void* memory) {
  const auto found = begin_.find(static_cast<const std::byte*>(memory));
  if (found != begin_.end() && windows_[found->second].in_use) return windows_[found->second];
  throw InvalidArgument(
      fmt::format("cannot free memory at {} on {}: allocate_device_memory did not return it",
                  memory, accelerator_->name()));
}

std::vector<Pool::PoolWindow> Pool::pin_from(std::size_t first) {
  const std::lock_guard lock(mutex_);
  std::vector<PoolWindow> windows;
  for (std::size_t number = first; number < windows_.size(); ++number) {
    Kept& kept = windows_[number];
    kept.pinned = true;
    windows.push_back({kept.memory.get(), kept.bytes});
  }
  return windows;
}

std::optional<InWindow> Pool::find(const void* memory, std::size_t bytes) const {
  const auto* const place = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  auto found = begin_.upper_bound(place);
  if (found == begin_.begin()) return std::nullopt;
  --found;
  const auto offset = static_cast<std::size_t>(place - found->first);
  const Kept& kept = windows_[found->second];
  if (offset > kept.bytes || bytes > kept.bytes - offset) return std::nullopt;
  return InWindow{found->second, offset};
}

}  // namespace mccl::device
