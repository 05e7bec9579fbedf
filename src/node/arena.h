// Memory that a process shares with the other processes of its node: one file, passed to them once.
// Groups and links allocate ranges of it. Peers receive the offset of a range and map it
// themselves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/machine.h"
#include "node/memory_file.h"

namespace mccl::node {

/// Distance in bytes between data that different processes write, to avoid false sharing.
inline constexpr std::size_t kLine = kLongestLine;

/// Location of a range in its arena. Sent to peers.
struct RangePlace {
  std::uint64_t offset = 0;
  /// Size in bytes, including the first cache line, which is not part of the user's memory.
  std::uint64_t bytes = 0;
};

/// The first page of every arena.
struct ArenaHeader {
  static constexpr std::uint64_t kMagic = 0x6d63636c2d73686eULL;
  std::uint64_t magic = kMagic;
  /// Nonzero while the process sleeps and must be woken by its bell.
  alignas(kLine) std::atomic<std::uint32_t> asleep{0};
  /// Incremented at every heartbeat, so that neighbours see without a message that the process is
  /// alive.
  alignas(kLine) std::atomic<std::uint64_t> beats{0};
};

class Arena;

/// A range of this process's own arena. Destroying the object releases the range. Once all readers
/// have also released it, the memory is reused, or returned to the system if possible. If a reader
/// dies before that, the memory stays in use.
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
/// address space only: memory is allocated range by range, and the first page is the arena's own.
/// Only allocate() needs memory for bookkeeping, because it also reserves the bookkeeping memory
/// that releasing the range needs.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  /// Throws Error if the system provides no shared memory.
  static std::shared_ptr<Arena> make(std::size_t capacity);

  /// Returns an empty Range if the capacity is used up or the system has no memory left. The first
  /// `cleared` bytes are zero; the rest may contain old data. Each of the `readers` must map the
  /// range exactly once.
  Range allocate(std::size_t bytes, std::uint32_t readers, std::size_t cleared = 0);

  /// Reclaims ranges that all readers have released. allocate() does so as well.
  void collect() noexcept;

  int descriptor() const { return file_.get(); }
  const Descriptor& file() const { return file_; }
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(first_page_.data()); }
  std::size_t capacity() const { return capacity_; }
  /// Bytes of memory in use by ranges.
  std::size_t taken() const { return taken_; }

 private:
  friend class Range;
  /// A range that its owner has released. Still mapped, in order to read the count of its readers.
  struct Retired {
    RangePlace place;
    Mapping mapping;
  };

  /// Maximum total size, in bytes, of the unused ranges that are kept for new ranges of the same
  /// size. A new group then need not wait for the system.
  static constexpr std::size_t kSpareBytes = std::size_t{8} << 20;

  explicit Arena(std::size_t capacity);
  bool take_spare(std::size_t bytes, Range& range);
  bool take_new(std::size_t bytes, Range& range);
  bool find_place(std::size_t bytes, RangePlace& place);
  bool release_spares() noexcept;
  bool discard(const RangePlace& place) noexcept;
  void give_back(RangePlace place) noexcept;

  const std::size_t capacity_;
  Descriptor file_;
  Mapping first_page_;
  std::size_t taken_ = 0;
  std::size_t ranges_ = 0;        // number of ranges in use, retired and spare
  std::vector<RangePlace> free_;  // sorted by offset; adjacent places are merged
  std::vector<Retired> retired_;  // readers may still use them
  std::vector<Retired> spare_;    // not used by anyone
  std::size_t spare_bytes_ = 0;
};

/// A range of a peer's arena.
class PeerRange {
 public:
  PeerRange() = default;
  ~PeerRange();
  PeerRange(PeerRange&&) noexcept = default;
  PeerRange& operator=(PeerRange&&) noexcept = default;

  std::span<std::byte> memory() const;
  RangePlace place() const { return place_; }

 private:
  friend class PeerArena;
  RangePlace place_;
  Mapping mapping_;
};

/// A peer's arena, from the file that the peer has passed.
class PeerArena {
 public:
  PeerArena() = default;
  /// Throws Error if the file is not an arena.
  explicit PeerArena(Descriptor file);

  explicit operator bool() const { return static_cast<bool>(file_); }
  /// Throws CorruptionError if the place is not inside the arena.
  void check(const RangePlace& place) const;
  /// Checks the place and maps it. Also throws Error if it cannot be mapped.
  PeerRange map(const RangePlace& place) const;
  /// Releases a range that this process has not mapped. Maps it and unmaps it again, because the
  /// owner waits until every reader has released the range. Throws CorruptionError if the place is
  /// not inside the arena. If the range cannot be mapped here, it stays in use: the owner cannot
  /// reuse this memory, but no data are at risk.
  void let_go_of(const RangePlace& place) const;
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(first_page_.data()); }
  const Descriptor& file() const { return file_; }

 private:
  Descriptor file_;
  std::size_t size_ = 0;
  Mapping first_page_;
};

}  // namespace mccl::node
