// An arena is memory that a process shares with the other processes of its node. It is an unnamed
// file, whose descriptor the process passes to each of these processes once. The system frees the
// memory when the last process that has the file open ends, even by a crash. Groups and links
// allocate ranges of the arena. Peers receive the offset of a range and map the range themselves.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/descriptor.h"
#include "base/machine.h"
#include "base/no_signal.h"
#include "node/free_list.h"
#include "node/heap.h"
#include "node/memory_file.h"

namespace mccl::node {

/// Distance in bytes between data that different processes write, to avoid false sharing.
inline constexpr std::size_t kLine = kLongestLine;

/// Location of a range in its arena. Sent to peers.
struct RangePlace {
  std::uint64_t offset = 0;
  /// Size in bytes. Includes the first kLine bytes of the range, which are not part of
  /// Range::memory(): they hold the number of readers that have not released the range.
  std::uint64_t bytes = 0;
};

/// Lies at the beginning of the first page of every arena.
struct ArenaHeader {
  static constexpr std::uint64_t kMagic = 0x6d63636c2d73686fULL;
  std::uint64_t magic = kMagic;
  /// Address of this header in the process that made the arena, and a random number. A process that
  /// finds the number there reads the memory of that process (peer_memory.h).
  std::uint64_t address = 0;
  std::uint64_t token = 0;
  /// Offset of the heap (heap.h), which extends to the end of the file.
  std::uint64_t heap = 0;
  /// Nonzero while the process sleeps, so that another process must wake it; see Bell.
  alignas(kLine) std::atomic<std::uint32_t> asleep{0};
  /// Incremented at every heartbeat, so that neighbours see without a message that the process is
  /// alive.
  alignas(kLine) std::atomic<std::uint64_t> beats{0};
};

class Arena;

/// A range of this process's own arena. Destroying the object releases the range. Once all readers
/// have also released it, the memory is reused, or returned to the system if possible. If a reader
/// dies before it has released the range, the memory stays in use.
class Range {
 public:
  Range() = default;
  ~Range();
  Range(Range&& other) noexcept = default;
  Range& operator=(Range&& other) noexcept;

  explicit operator bool() const { return mapping_.data() != nullptr; }
  std::span<std::byte> memory() const;
  RangePlace place() const { return place_; }

 private:
  friend class Arena;
  std::shared_ptr<Arena> arena_;
  RangePlace place_;
  Mapping mapping_;
};

/// This process's shared memory, from which it allocates ranges. Not thread-safe. The capacity is
/// only the size of the file; memory is allocated range by range. The first page holds the
/// ArenaHeader. Only allocate() allocates heap memory: it also reserves the heap memory that
/// releasing the range needs, so that a release cannot fail.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  /// Makes an arena from which ranges of up to `capacity` bytes in total can be allocated, and
  /// buffers of up to `heap` bytes. There is no heap if `heap` is 0, or if this process may not
  /// make so large a file. Throws Error if the system provides no shared memory.
  static std::shared_ptr<Arena> make(std::size_t capacity, std::size_t heap = 0);

  /// Allocates a range whose memory() has at least `bytes` bytes. Returns an empty Range if the
  /// arena's capacity is used up or the system has no memory left. The first `cleared` bytes are
  /// zero; the rest may contain data of an earlier range. `readers` is the number of processes that
  /// read the range; each must map it exactly once.
  Range allocate(std::size_t bytes, std::uint32_t readers, std::size_t cleared = 0);

  /// Reclaims ranges that all readers have released. allocate() does so as well.
  void collect() noexcept;

  int descriptor() const { return file_.get(); }
  const Descriptor& file() const { return file_; }
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(first_page_.data()); }
  std::size_t capacity() const { return capacity_; }
  /// The heap, for buffers of collectives; null if there is none. Unlike the arena, it is
  /// thread-safe.
  Heap* heap() { return heap_ ? &*heap_ : nullptr; }
  /// Total size in bytes of the ranges that their owner or a reader still uses.
  std::size_t taken() const { return taken_; }

 private:
  friend class Range;
  /// A range that its owner has released. It stays mapped, because its first cache line contains
  /// the number of readers that still use it.
  struct Retired {
    RangePlace place;
    Mapping mapping;
  };

  /// Maximum total size, in bytes, of the unused ranges that are kept for new ranges of the same
  /// size. A new group then need not wait until the system has allocated and cleared pages.
  static constexpr std::size_t kSpareBytes = std::size_t{8} << 20;

  Arena(std::size_t capacity, std::size_t heap);
  bool take_spare(std::size_t bytes, Range& range);
  bool take_new(std::size_t bytes, Range& range);
  bool release_spares() noexcept;
  bool discard(const RangePlace& place) noexcept;

  const std::size_t capacity_;
  Descriptor file_;
  Mapping first_page_;
  std::size_t taken_ = 0;
  std::size_t ranges_ = 0;  // number of ranges in use, retired and spare
  FreeList free_;
  std::vector<Retired> retired_;  // released by their owners; readers may still use them
  std::vector<Retired> spare_;    // unused, kept for take_spare()
  std::size_t spare_bytes_ = 0;
  std::optional<Heap> heap_;
};

/// A range of a peer's arena.
class PeerRange {
 public:
  PeerRange() = default;
  ~PeerRange();
  PeerRange(PeerRange&&) noexcept = default;
  PeerRange& operator=(PeerRange&&) noexcept = default;

  std::span<std::byte> memory() const;

 private:
  friend class PeerArena;
  Mapping mapping_;
};

/// A peer's arena: the file whose descriptor the peer has passed to this process.
class PeerArena {
 public:
  PeerArena() = default;
  /// Throws Error if the file is not an arena.
  explicit PeerArena(Descriptor file);

  explicit operator bool() const { return static_cast<bool>(file_); }
  /// Throws CorruptionError if the place is not inside the part of the arena for ranges.
  void check(const RangePlace& place) const;
  /// Calls check(), and maps the place. Throws Error if the place cannot be mapped.
  PeerRange map(const RangePlace& place) const;
  /// Releases a range that this process should have read but has not mapped. The owner reuses the
  /// memory only after every reader has released the range. This function maps and unmaps the
  /// range; unmapping releases it. Throws CorruptionError if the place is not inside the arena. If
  /// the range cannot be mapped here, it stays in use: the owner cannot reuse its memory, but no
  /// data are at risk.
  void let_go_of(const RangePlace& place) const;
  /// The peer's heap (heap.h), which the first call maps; empty if the peer has none. Valid as long
  /// as this object. Throws Error if this process has no address space left for it.
  SparseMapping& heap() const;
  std::size_t heap_bytes() const { return size_ - heap_begin_; }
  /// Offset of the heap in the file.
  std::size_t heap_begin() const { return heap_begin_; }
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(first_page_.data()); }
  const Descriptor& file() const { return file_; }

 private:
  Descriptor file_;
  std::size_t size_ = 0;
  std::size_t heap_begin_ = 0;
  Mapping first_page_;
  mutable SparseMapping heap_;
};

/// A bell wakes a process that sleeps in poll(2). A Sleeper is used by the sleeping process, a Bell
/// by the processes that wake it. A process that is about to sleep sets a flag in its arena, and
/// then checks once more for the event that it waits for. A process that causes an event checks the
/// flag afterwards. Therefore either the first process sees the event, or the second process sees
/// the flag and wakes the first.
class Sleeper {
 public:
  explicit Sleeper(ArenaHeader& header) : header_(header) {}

  /// Announces that this process is about to sleep. The caller must then check for events once more
  /// before it sleeps.
  void fall_asleep() {
    header_.asleep.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void wake_up() {
    if (header_.asleep.load(std::memory_order_relaxed) != 0) {
      header_.asleep.store(0, std::memory_order_relaxed);
    }
  }

 private:
  ArenaHeader& header_;
};

/// Wakes a process that sleeps in poll(2); see Sleeper. `socket` is one end of a socket pair; the
/// sleeper polls the other end. Thread-safe.
class Bell {
 public:
  Bell(ArenaHeader& header, int socket) : header_(&header), socket_(socket) {}

  /// Wakes the other process if it sleeps or is about to sleep. Otherwise the process will check
  /// for events before it sleeps, and then sees everything that was stored before this call.
  void ring() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    ring_after_fence();
  }
  /// The same as ring(), but without the fence. A caller that rings several bells issues one fence
  /// for all of them.
  void ring_after_fence() const {
    if (header_->asleep.load(std::memory_order_relaxed) != 0) wake();
  }

 private:
  void wake() const {
    if (header_->asleep.exchange(0, std::memory_order_relaxed) == 0) return;
    // If the sleeper has died, send() without kNoSignal would end this process with SIGPIPE.
    const char byte = 1;
    static_cast<void>(::send(socket_, &byte, 1, kNoSignal | MSG_DONTWAIT) ==
                      1);  // if the socket is full, the bytes in it wake the sleeper
  }

  ArenaHeader* header_;
  int socket_;
};

/// Bytes of shared memory that a rank plans to use: kGroupBytes for all groups together, and
/// kBytesPerNeighbour for the links to each neighbour. The memory is allocated only when it is
/// needed.
inline constexpr std::size_t kGroupBytes = std::size_t{64} << 20;
inline constexpr std::size_t kBytesPerNeighbour = std::size_t{8} << 20;
/// Maximum number of neighbours for which memory is planned. If a rank has more, all its neighbours
/// share the planned memory.
inline constexpr std::size_t kMostNeighbours = 512;

/// Address space of an arena, as a multiple of the planned memory. Thousands of windows and links
/// fit, because thrifty() makes new ones smaller as more of the planned memory is in use.
inline constexpr std::size_t kRoomForThrift = 4;

inline std::size_t arena_bytes(std::size_t neighbours) {
  return kRoomForThrift *
         (kGroupBytes + kBytesPerNeighbour * std::min(neighbours, kMostNeighbours));
}

/// Chooses the size of a window or of a link, so that even a thousand groups get shared memory.
/// Returns `usual` if this rank has less than half of the planned memory in use, usual / 4 if less
/// than all of it, usual / 16 if less than twice as much, and otherwise usual / 64; but at least
/// `least`.
inline std::size_t thrifty(std::size_t usual, std::size_t least, const Arena& arena) {
  const std::size_t taken = arena.taken();
  const std::size_t all = arena.capacity() / kRoomForThrift;
  const int quarterings = taken < all / 2 ? 0 : taken < all ? 1 : taken < 2 * all ? 2 : 3;
  return std::max(least, usual >> (2 * quarterings));
}

}  // namespace mccl::node
