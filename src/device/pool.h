// Device memory that other processes can reach.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "device/device.h"

namespace mccl::device {

/// A position in the memory of a Pool: the window's number, and the offset in the window in bytes.
struct InWindow {
  std::size_t window;
  std::size_t offset;
};

/// Hands out device memory in windows. A window is one allocation of the device; windows are
/// numbered in the order of allocation. The number of a freed window is reused if the window was
/// never announced to other ranks. An announced window is never freed, because no rank knows when
/// the last peer has stopped using it; take() hands out its memory again. Thread-safe.
class Pool {
 public:
  explicit Pool(std::shared_ptr<Accelerator> accelerator) : accelerator_(std::move(accelerator)) {}

  /// Returns at least `bytes` bytes of device memory. Throws Error if the device is out of memory.
  void* take(std::size_t bytes);
  /// Takes back memory from take(). Throws InvalidArgument for any other pointer. Blocks until the
  /// device has finished all work that was submitted to it.
  void give_back(void* memory);

  struct PoolWindow {
    void* memory;  ///< Null if the window has been freed.
    std::size_t bytes;
  };
  /// Returns all windows with number `first` or higher, which the caller announces to other ranks.
  /// These windows are never freed afterwards.
  std::vector<PoolWindow> pin_from(std::size_t first);

  /// Finds the window that contains all `bytes` bytes at `memory`. Empty if no window contains
  /// them.
  std::optional<InWindow> find(const void* memory, std::size_t bytes) const;

 private:
  struct Kept {
    std::shared_ptr<void> memory;
    std::size_t bytes;
    bool in_use;
    bool pinned;
  };

  bool is_pinned(const void* memory);
  Kept& taken(const void* memory);

  const std::shared_ptr<Accelerator> accelerator_;
  mutable std::mutex mutex_;
  std::vector<Kept> windows_;  // guarded by mutex_
  /// Start address of each window -> index into windows_; guarded by mutex_.
  std::map<const std::byte*, std::size_t> begin_;
};

}  // namespace mccl::device
