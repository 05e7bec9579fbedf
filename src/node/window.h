// The window of a group's ranks on one node: memory of each that all the others read.
//
// A rank may be several calls ahead of a slow neighbour, as the root of a broadcast is: its calls
// use the places of the window in turn. A call has a head, which holds the count of arrivals and
// room for the smallest publications, so that a small call moves one cache line. A call that
// publishes more has a place in a row of blocks, which the calls go around: then a block has left
// the caches of those who read it before it is written again, which takes long otherwise. Arrivals
// are counted over the life of the window, never back to 0.
//
// A rank uses a place again only when every neighbour has arrived in the call after the one that
// used it last: all that it had to read there, it has read.
//
// Whoever only publishes looks at nobody at the time. So each call's fingerprint contains those of
// all calls before it, and what the last calls were stays readable in a trail that is twice as long
// as anybody can be ahead.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "node/arena.h"
#include "node/bell.h"

namespace mccl::node {

/// What a rank says of its call to the others, opaque here.
inline constexpr std::size_t kLabelBytes = 48;

/// Calls of one rank whose places are distinct.
inline constexpr std::size_t kDepth = 16;

/// What the others look at first in a call.
struct alignas(64) CallHead {
  static constexpr std::size_t kInlineBytes = 48;

  std::atomic<std::uint64_t> arrivals{0};
  std::uint64_t fingerprint = 0;     ///< Of all calls so far: neighbours that differ have diverged.
  std::byte smallest[kInlineBytes];  ///< A publication that fits.
};
static_assert(sizeof(CallHead) == 64);

/// What a call was.
struct alignas(64) CallTrace {
  std::uint64_t fingerprint = 0;
  std::byte label[kLabelBytes];
};
static_assert(sizeof(CallTrace) == 64);

/// How a rank's range begins: the heads, and then the trail, each of a cache line of this machine
/// of its own, however long that is. The row of blocks follows at the next multiple of a block.
class WindowFront {
 public:
  explicit WindowFront(std::byte* memory = nullptr, std::size_t line = line_bytes())
      : memory_(memory), line_(line) {}

  CallHead& head(std::uint64_t call) const {
    return *reinterpret_cast<CallHead*>(memory_ + call % kDepth * line_);
  }
  CallTrace& trace(std::uint64_t call) const {
    return *reinterpret_cast<CallTrace*>(memory_ + (kDepth + call % (2 * kDepth)) * line_);
  }

  static constexpr std::size_t kBlockBytes = 4096;
  /// A range's memory begins kLine after a page does.
  static constexpr std::size_t bytes(std::size_t line) {
    const std::size_t all = kLine + 3 * kDepth * line;
    return (all + kBlockBytes - 1) / kBlockBytes * kBlockBytes - kLine;
  }

 private:
  std::byte* memory_;
  std::size_t line_;
};

/// Bytes of a range for a window of which a call can publish so many. Two such calls have room side
/// by side, or everybody would wait for everybody to go on.
inline std::size_t window_bytes(std::size_t call_bytes, std::size_t line = line_bytes()) {
  return WindowFront::bytes(line) + 2 * call_bytes;
}

/// Places in a row of blocks for calls that come one after another: of a power of two of blocks,
/// and at a multiple of it, so that a call's place is never that of the call before.
class BlockRow {
 public:
  static constexpr std::size_t kBlockBytes = WindowFront::kBlockBytes;

  /// `bytes`: a power of two, of at least two blocks.
  explicit BlockRow(std::size_t bytes);

  struct Place {
    std::size_t offset = 0;      ///< In bytes.
    std::uint64_t last_use = 0;  ///< The last call that used any of it; 0: none.
  };
  /// For `call`, which is later than all before; `bytes` is at most half of the row.
  Place take(std::size_t bytes, std::uint64_t call);

 private:
  std::vector<std::uint64_t> last_use_;  // by block
  std::size_t next_ = 0;                 // in blocks
};

/// Used under the engine's progress lock. Neighbours are numbered as the ranks of the group.
class Window {
 public:
  struct Neighbour {
    int rank;
    PeerRange range;
    Bell bell;
    /// The neighbour's memory: of `range`, unless the caller has mapped it otherwise.
    std::span<std::byte> memory = range.memory();
  };

  /// `call_bytes`, a power of two and at least a block, is what all have agreed on: the most that a
  /// call can publish. Throws CorruptionError when a neighbour's range is smaller than that takes.
  Window(int group_size, Range own, std::vector<Neighbour> neighbours, std::size_t call_bytes,
         std::size_t line = line_bytes());
  /// The same where the caller keeps this rank's own memory, which begins as zeros.
  Window(int group_size, std::span<std::byte> own, std::vector<Neighbour> neighbours,
         std::size_t call_bytes, std::size_t line = line_bytes());

  std::size_t call_bytes() const { return call_bytes_; }

  /// A call begins: it arrives `arrivals` times and publishes at most `published` bytes at a time.
  void begin(std::uint32_t arrivals, std::size_t published, std::uint64_t fingerprint);
  /// Whether its places may be written now; stays true for the rest of the call.
  bool open();
  bool is_open() const { return open_ && stray_ < 0; }
  /// A neighbour that open() waits for; -1 when there is none.
  int late() const;
  /// The call is over; a call that fails is never over.
  void end();

  /// What the call is, for neighbours that called something else: written once it is open, before
  /// it arrives.
  std::span<std::byte, kLabelBytes> label() {
    return std::span<std::byte, kLabelBytes>(trace_of(own_view_, call_).label, kLabelBytes);
  }
  /// This rank's memory for the call. Requires open().
  std::byte* own() { return own_data_; }
  void arrive();

  /// Whether the neighbour has arrived so often in this call.
  bool arrived(int rank, std::uint32_t mark) const {
    return head_of(rank, call_).arrivals.load(std::memory_order_acquire) >= base_ + mark;
  }
  /// Of a neighbour that has arrived in this call: whether it called the same, now and before.
  bool same_calls(int rank) {
    if (head_of(rank, call_).fingerprint != fingerprint_) return false;
    views_[static_cast<std::size_t>(rank)].compared = call_;
    return true;
  }
  const std::byte* published_by(int rank) const;

  /// Once open: a neighbour of which it has come out that it called something else than this rank;
  /// -1 when there is none.
  int strayed() const { return stray_; }

  /// The first call in which a neighbour differs that has strayed, or that has arrived in this call
  /// and has not called the same.
  struct Divergence {
    std::span<const std::byte, kLabelBytes> theirs;
    std::span<const std::byte, kLabelBytes> ours;  ///< Only if it is over.
    bool is_over;                                  ///< It is a call before this one.
  };
  Divergence divergence_of(int rank) const;

 private:
  struct View {
    WindowFront front;
    std::byte* row = nullptr;
    std::uint64_t compared = 0;  ///< The last call known to be the same as this rank's.
  };

  const CallHead& head_of(int rank, std::uint64_t call) const {
    return views_[static_cast<std::size_t>(rank)].front.head(call);
  }
  static CallTrace& trace_of(const View& view, std::uint64_t call) {
    return view.front.trace(call);
  }
  std::byte* data_of(const View& view) const;
  View view_of(std::span<std::byte> memory) const;
  int find_stray();

  const std::size_t call_bytes_;
  const std::size_t line_;
  Range own_;
  std::vector<Neighbour> neighbours_;
  View own_view_;
  std::vector<View> views_;  // by rank of the group

  // Calls count from 1.
  std::uint64_t call_ = 0;
  std::uint64_t base_ = 0;                  // arrivals before this call
  std::uint64_t first_arrivals_[kDepth]{};  // of the last calls: the count of their first arrival
  std::uint64_t awaited_ = 0;   // the call that all neighbours must have begun before this may open
  std::uint32_t arrivals_ = 0;  // of the call in all
  std::uint32_t arrived_ = 0;   // so far
  bool open_ = false;
  int stray_ = -1;

  BlockRow row_;
  bool in_head_ = true;     // what the call publishes fits there
  std::size_t offset_ = 0;  // or is in the row, from here on

  std::uint64_t fingerprint_ = 0;
  std::byte* own_data_ = nullptr;
};

}  // namespace mccl::node
