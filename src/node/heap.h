// The heap of a rank: memory for the buffers of collectives, which the rank's neighbours read where
// it lies, without a copy in the window (window.h). It is the last part of the rank's arena file.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/descriptor.h"
#include "node/free_list.h"
#include "node/memory_file.h"

namespace mccl::node {

/// Allocates from the part of a memory file that begins at `offset` and has `bytes` bytes, both
/// multiples of page_bytes(). Each allocation starts at a page. Thread-safe.
///
/// Up to kSpareBytes of freed memory are kept for requests of the same size, because new pages must
/// be cleared first.
class Heap {
 public:
  static constexpr std::size_t kSpareBytes = std::size_t{256} << 20;

  /// `file` must outlive the heap. Maps nothing before the first allocation.
  Heap(const Descriptor& file, std::size_t offset, std::size_t bytes);

  /// Returns memory with undefined content; null if this process has no address space for the heap.
  /// Throws Error if there is not enough memory, or in a process that was forked since this heap
  /// was made.
  std::byte* allocate(std::size_t bytes);
  /// Frees what allocate() returned. Does nothing in a process that was forked since this heap was
  /// made: the memory belongs to the parent.
  void release(std::byte* memory) noexcept;

  /// Returns the freed memory that is kept to the system, and keeps none from now on.
  void keep_no_spare() noexcept;

  /// Offset in the file of `bytes` bytes at `memory`, if all of them lie in this heap; else 0.
  std::uint64_t place_of(const void* memory, std::size_t bytes) const noexcept;

  std::size_t size() const { return bytes_; }
  /// Bytes that are allocated now, in whole pages.
  std::size_t taken() const;
  /// Bytes of freed memory that are kept.
  std::size_t spare() const;

 private:
  struct Block {
    std::size_t offset;
    std::size_t bytes;
  };

  bool map();
  std::size_t take(std::size_t bytes);
  bool take_spare(std::size_t bytes, std::size_t& offset);
  bool take_new(std::size_t bytes, std::size_t& offset);
  void shrink_spare(std::size_t most) noexcept;

  const Descriptor& file_;
  const std::size_t offset_;
  const std::size_t bytes_;
  const pid_t process_ = ::getpid();
  std::atomic<std::byte*> base_{nullptr};  // address of the first byte; null before the first use

  mutable std::mutex mutex_;  // guards all members below
  SparseMapping mapping_;
  FreeList free_;
  std::map<std::size_t, std::size_t> taken_;  // bytes of each allocation, by offset
  std::vector<Block> spare_;                  // freed and kept, oldest first
  std::size_t taken_bytes_ = 0;
  std::size_t spare_bytes_ = 0;
  std::size_t most_spare_ = kSpareBytes;
};

/// Size in bytes of a rank's heap: that of the machine's memory, since only pages in use cost
/// memory. 0 if the process has limited address space, and on systems other than Linux, where a
/// file cannot return single pages.
std::size_t heap_bytes();

class Arena;

/// Returns `bytes` bytes of the arena's heap, with undefined content. They are freed with the last
/// reference, on any thread, and keep the arena alive. If there is no arena, or it has no heap, or
/// this process has no address space for the heap, the memory is ordinary memory. In both cases it
/// starts at a page. Throws Error if there is not enough memory.
std::shared_ptr<std::byte> allocate(const std::shared_ptr<Arena>& arena, std::size_t bytes);

}  // namespace mccl::node
