// Keeps pinned memory and bounces (HostBounce) of one device for reuse, because allocating pinned
// memory or making a bounce is slow and may wait for all work of the device.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "device/device.h"

namespace mccl::device {

class Depot;

/// Pinned memory of one call. The destructor returns the memory to the depot for reuse.
class Block {
 public:
  Block() = default;
  Block(std::shared_ptr<Depot> depot, std::byte* data, std::size_t bytes)
      : depot_(std::move(depot)), data_(data), bytes_(bytes) {}
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept;
  ~Block();

  std::byte* data() const { return data_; }

 private:
  std::shared_ptr<Depot> depot_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Thread-safe. Blocks keep their depot alive.
class Depot : public std::enable_shared_from_this<Depot> {
 public:
  explicit Depot(std::shared_ptr<Accelerator> accelerator);
  ~Depot();

  Accelerator& accelerator() const { return *accelerator_; }
  std::shared_ptr<Accelerator> shared_accelerator() const { return accelerator_; }

  /// Returns a block of at least `bytes` bytes. When the block is no longer used, it stays
  /// allocated for reuse, unless the unused blocks then exceed pinned_memory().limit() bytes in
  /// total.
  Block block(std::size_t bytes);
  /// Returns a bounce that no other call uses. The caller must pass it to take_back() once its call
  /// has ended.
  std::unique_ptr<HostBounce> bounce();
  /// Keeps the bounce for reuse.
  void take_back(std::unique_ptr<HostBounce> bounce);
  /// Frees the blocks that have been unused for `time`, and further ones if the unused blocks
  /// exceed the limit of block(). Frees nothing while a call uses a bounce: freeing may wait for
  /// all work of the device, and the copies of the bounce may wait for the host.
  void release_unused(Clock::duration time);
  std::size_t unused_bytes() const;

 private:
  friend class Block;
  struct Unused {
    std::byte* data;
    Clock::time_point since;
  };
  void take_back(std::byte* data, std::size_t bytes);
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* data, std::size_t bytes);

  const std::shared_ptr<Accelerator> accelerator_;
  mutable std::mutex mutex_;
  std::multimap<std::size_t, Unused> unused_;         // guarded by mutex_; keyed by size
  std::size_t unused_bytes_ = 0;                      // guarded by mutex_
  std::vector<std::unique_ptr<HostBounce>> bounces_;  // guarded by mutex_
  int bounces_in_use_ = 0;                            // guarded by mutex_
  std::vector<std::byte*> pages_of_words_;            // guarded by mutex_
  std::size_t words_left_ = 0;                        // guarded by mutex_
};

}  // namespace mccl::device
