// The memory that a process shares with the others of its node: one file, passed to them once, of
// which groups and links take ranges. Peers are told a range by its offset and map it themselves.
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

/// What one side of shared memory writes lies so far from what the other does.
inline constexpr std::size_t kLine = kLongestLine;

/// Where peers find a range.
struct RangePlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< With the first line, which is not the range's user's.
};

/// The first page of every arena.
struct ArenaHeader {
  static constexpr std::uint64_t kMagic = 0x6d63636c2d73686eULL;
  std::uint64_t magic = kMagic;
  /// Not 0 while the process sleeps and wants its bell rung.
  alignas(kLine) std::atomic<std::uint32_t> asleep{0};
  /// Counts up at every beat of the process's heart: neighbours need no message to see it live.
  alignas(kLine) std::atomic<std::uint64_t> beats{0};
};

class Arena;

/// A range of this process's own arena. Its memory goes back, to the system where that takes it,
/// when all of its readers have let go of it too, which a reader that dies never does.
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

/// Not thread-safe. Capacity, of which the first page is the arena's own, is address space only;
/// memory is taken range by range. Only allocate() needs memory for its books: it makes room in
/// them for the range's way back.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  /// Throws Error when the system gives no shared memory.
  static std::shared_ptr<Arena> make(std::size_t capacity);

  /// An empty Range when the capacity is used up or the system has no memory left for it. The first
  /// `cleared` bytes are zero; behind them may be what a range was used for before. Each of the
  /// `readers` is to map it once.
  Range allocate(std::size_t bytes, std::uint32_t readers, std::size_t cleared = 0);

  /// Takes back what no reader holds any more; allocate() does it too.
  void collect() noexcept;

  int descriptor() const { return file_.get(); }
  const Descriptor& file() const { return file_; }
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(first_page_.data()); }
  std::size_t capacity() const { return capacity_; }
  /// Bytes of memory that are handed out.
  std::size_t taken() const { return taken_; }

 private:
  friend class Range;
  /// A range that its owner has let go of, still mapped for the count of its readers.
  struct Retired {
    RangePlace place;
    Mapping mapping;
  };

  /// Of ranges that nobody uses, whose memory is kept for the next ones of their size: a group that
  /// is made like one before it need not wait for the system.
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
  std::size_t ranges_ = 0;        // living ones, retired ones and spare ones
  std::vector<RangePlace> free_;  // by offset; no two that touch
  std::vector<Retired> retired_;  // readers may still look at them
  std::vector<Retired> spare_;    // nobody looks at them
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

/// What a peer has passed of its arena.
class PeerArena {
 public:
  PeerArena() = default;
  /// Throws Error when it is no arena.
  explicit PeerArena(Descriptor file);

  explicit operator bool() const { return static_cast<bool>(file_); }
  /// Throws CorruptionError for a place outside of the arena.
  void check(const RangePlace& place) const;
  /// The same, and Error when it cannot be mapped.
  PeerRange map(const RangePlace& place) const;
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(first_page_.data()); }
  const Descriptor& file() const { return file_; }

 private:
  Descriptor file_;
  std::size_t size_ = 0;
  Mapping first_page_;
};

}  // namespace mccl::node
