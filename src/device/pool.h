// Memory of a device that other processes may come to reach.
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

/// Where something lies: in which window, and how far in.
struct InWindow {
  std::size_t window;
  std::size_t offset;
};

/// A window is memory that was taken from the device in one piece; windows are numbered as they are
/// taken. A number that nobody was told of is used again when its window is gone. What others have
/// been told of stays until the process ends, since nobody knows when the last of them has left it,
/// and is given out again. Thread-safe.
class Pool {
 public:
  explicit Pool(std::shared_ptr<Accelerator> accelerator) : accelerator_(std::move(accelerator)) {}

  /// Throws Error where the device has no more.
  void* take(std::size_t bytes);
  /// What take() gave; anything else throws InvalidArgument. Waits for all that the device has been
  /// given.
  void give_back(void* memory);

  struct Window {
    void* memory;  ///< Null where it is gone.
    std::size_t bytes;
  };
  /// All windows from number `first` on, which from now on stay.
  std::vector<Window> tell(std::size_t first);

  /// Where `bytes` at `memory` lie, if all of them are of one window.
  std::optional<InWindow> find(const void* memory, std::size_t bytes) const;

 private:
  struct Kept {
    std::shared_ptr<void> memory;
    std::size_t bytes;
    bool in_use;
    bool told;
  };

  bool is_told(const void* memory);
  Kept& taken(const void* memory);

  const std::shared_ptr<Accelerator> accelerator_;
  mutable std::mutex mutex_;
  std::vector<Kept> windows_;                      // guarded by mutex_
  std::map<const std::byte*, std::size_t> begin_;  // guarded by mutex_; numbers by address
};

}  // namespace mccl::device
