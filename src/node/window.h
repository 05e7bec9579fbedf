// The window of a group's ranks on one node: memory of each rank that all the others read.
//
// A rank may be several calls ahead of a slow neighbour, for example as the root of broadcasts, so
// its calls use the places of the window in turn. Each call has a head, which holds the count of
// arrivals and room for the smallest publications, so that a small call moves one cache line. A
// call that publishes more also gets a place in a row of blocks, which calls use in a circle. By
// the time a block is written again, it has left its readers' caches; otherwise writing it would
// take long. Arrivals are counted over the life of the window and never reset.
//
// A rank reuses a place only when every neighbour has arrived in the call after the one that used
// it last. By then the neighbour has read everything it needed there.
//
// A rank that only publishes does not look at its neighbours during the call. So each call's
// fingerprint includes those of all earlier calls, and a trail keeps the last calls readable. The
// trail is twice as long as a rank can be ahead.
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

/// Size of a rank's description of its call, which this layer does not interpret.
inline constexpr std::size_t kLabelBytes = 48;

/// Number of consecutive calls of one rank whose places are distinct.
inline constexpr std::size_t kDepth = 16;

/// The part of a call that neighbours read first.
struct alignas(64) CallHead {
  static constexpr std::size_t kInlineBytes = 48;

  std::atomic<std::uint64_t> arrivals{0};
  /// Fingerprint of all calls so far. Ranks whose values differ have made different calls.
  std::uint64_t fingerprint = 0;
  std::byte smallest[kInlineBytes];  ///< A publication, if it fits here.
};
static_assert(sizeof(CallHead) == 64);

/// The trail's record of one call.
struct alignas(64) CallTrace {
  std::uint64_t fingerprint = 0;
  std::byte label[kLabelBytes];
};
static_assert(sizeof(CallTrace) == 64);

/// The front of a rank's range: the heads, followed by the trail. Each occupies one cache line of
/// this machine, whatever its length. The row of blocks follows at the next multiple of a block.
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
  /// Aligns the end to a block; a range's memory begins kLine after a page boundary.
  static constexpr std::size_t bytes(std::size_t line) {
    const std::size_t all = kLine + 3 * kDepth * line;
    return (all + kBlockBytes - 1) / kBlockBytes * kBlockBytes - kLine;
  }

 private:
  std::byte* memory_;
  std::size_t line_;
};

/// Size of a range for a window in which one call can publish `call_bytes`. It has room for two
/// such calls, since otherwise every call would have to wait for all neighbours.
inline std::size_t window_bytes(std::size_t call_bytes, std::size_t line = line_bytes()) {
  return WindowFront::bytes(line) + 2 * call_bytes;
}

/// Assigns places in a row of blocks to consecutive calls. A place has a power of two of blocks and
/// starts at a multiple of its size, so a call's place never overlaps that of the call before.
class BlockRow {
 public:
  static constexpr std::size_t kBlockBytes = WindowFront::kBlockBytes;

  /// `bytes`: a power of two, at least two blocks.
  explicit BlockRow(std::size_t bytes);

  struct Place {
    std::size_t offset = 0;      ///< A place in the row, in bytes.
    std::uint64_t last_use = 0;  ///< The last call that used any part of it; 0 if none.
  };
  /// Assigns a place to `call`, which must be later than all earlier ones. `bytes` must be at most
  /// half of the row.
  Place take(std::size_t bytes, std::uint64_t call);

 private:
  std::vector<std::uint64_t> last_use_;  // for each block
  std::size_t next_ = 0;                 // index of a block
};

/// This rank's view of its group's window: its own memory and that of its neighbours. Used under
/// the engine's progress lock. Neighbours are identified by their rank in the group.
class Window {
 public:
  struct Neighbour {
    int rank;
    PeerRange range;
    Bell bell;
    /// The neighbour's memory: that of `range`, unless the caller has mapped it differently.
    std::span<std::byte> memory = range.memory();
  };

  /// `call_bytes`: the most that a call can publish, as all ranks have agreed; a power of two, at
  /// least one block. Throws CorruptionError if a neighbour's range is too small for it.
  Window(int group_size, Range own, std::vector<Neighbour> neighbours, std::size_t call_bytes,
         std::size_t line = line_bytes());
  /// The caller keeps this rank's own memory, which must be zero at first.
  Window(int group_size, std::span<std::byte> own, std::vector<Neighbour> neighbours,
         std::size_t call_bytes, std::size_t line = line_bytes());

  std::size_t call_bytes() const { return call_bytes_; }

  /// Begins a call that arrives `arrivals` times and publishes at most `published` bytes at a time.
  void begin(std::uint32_t arrivals, std::size_t published, std::uint64_t fingerprint);
  /// Opens the call's places for writing if possible. Returns true once they are open.
  bool open();
  bool is_open() const { return open_ && stray_ < 0; }
  /// A neighbour that open() waits for; -1 if there is none.
  int late() const;
  /// Ends the call. A call that fails is never ended.
  void end();

  /// Describes the call to neighbours that called something else. Must be written after open() and
  /// before arrive().
  std::span<std::byte, kLabelBytes> label() {
    return std::span<std::byte, kLabelBytes>(trace_of(own_view_, call_).label, kLabelBytes);
  }
  /// This rank's memory for publications of the call. Requires open().
  std::byte* own() { return own_data_; }
  void arrive();

  /// True if the neighbour has arrived at least `mark` times in this call.
  bool arrived(int rank, std::uint32_t mark) const {
    return head_of(rank, call_).arrivals.load(std::memory_order_acquire) >= base_ + mark;
  }
  /// True if the neighbour made the same call as this rank, now and before. The neighbour must have
  /// arrived in this call.
  bool same_calls(int rank) {
    if (head_of(rank, call_).fingerprint != fingerprint_) return false;
    views_[static_cast<std::size_t>(rank)].compared = call_;
    return true;
  }
  const std::byte* published_by(int rank) const;

  /// After open(): a neighbour found to have made a different call earlier; -1 if there is none.
  int strayed() const { return stray_; }

  /// The first call in which a neighbour differs. The neighbour must have strayed, or must have
  /// arrived in this call with a different fingerprint.
  struct Divergence {
    std::span<const std::byte, kLabelBytes> theirs;
    /// This rank's description of its own call; valid only if `is_over`.
    std::span<const std::byte, kLabelBytes> ours;
    bool is_over;  ///< True if that call precedes the current one.
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
  std::vector<View> views_;  // indexed by rank of the group

  // Calls count from 1.
  std::uint64_t call_ = 0;
  std::uint64_t base_ = 0;                  // arrivals before this call
  std::uint64_t first_arrivals_[kDepth]{};  // for each recent call: the count at its first arrival
  std::uint64_t awaited_ = 0;   // the call that all neighbours must have begun before this may open
  std::uint32_t arrivals_ = 0;  // total of this call
  std::uint32_t arrived_ = 0;   // so far
  bool open_ = false;
  int stray_ = -1;

  BlockRow row_;
  bool in_head_ = true;     // publications of the call fit into its head
  std::size_t offset_ = 0;  // otherwise: their offset in the row

  std::uint64_t fingerprint_ = 0;
  std::byte* own_data_ = nullptr;
};

}  // namespace mccl::node
