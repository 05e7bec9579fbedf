// The window: memory that the ranks of a group on one node share for its collective calls. Each
// rank writes its own part of the window; its neighbours, which are the other ranks, read it.
//
// A rank may be several collective calls ahead of a slow neighbour, for example as the root of
// broadcasts. Its consecutive calls therefore use different memory. A call publishes data: it
// writes them to its rank's part and then arrives, which increments the rank's count of arrivals.
// Each call has a head with this count and space for a small publication, so that a small call
// moves one cache line. A call that publishes more also gets blocks from the rank's row of blocks.
// The rank's calls use this row as a ring. By the time a block is reused, it has left its readers'
// caches; a write to a cached block would be slow. The count of arrivals is never reset.
//
// A rank reuses a head or a block only when every neighbour has arrived in the call after the one
// that last used it, and has therefore finished reading it.
//
// A rank need not write its data to the window if its neighbours can read them where they lie: in
// the rank's heap (heap.h), or anywhere in the memory of its process (peer_memory.h). The head of
// its call then says where. The rank must not change these data before its neighbours have arrived
// again. A rank whose call fails earlier first withdraws its memories; a neighbour looks for that
// after each read, so it never uses data that have changed.
//
// A rank that only publishes does not read its neighbours' memory during the call. It notices only
// later that a neighbour has made a different call. Each call's fingerprint therefore includes the
// fingerprints of all earlier calls, and a trail keeps the records of the rank's last 2 * kDepth
// calls. This is twice the number of calls that a rank can be ahead of a neighbour.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "node/arena.h"
#include "node/peer_memory.h"

namespace mccl::node {

/// Size in bytes of a rank's description of its call. This layer does not interpret the
/// description.
inline constexpr std::size_t kLabelBytes = 48;

/// Number of heads that a rank has. The rank's calls use the heads in turn.
inline constexpr std::size_t kDepth = 16;

/// Where the memories lie that a call's neighbours read in place: the offset in the rank's arena
/// file or, with the flag kInProcess, the address in the rank's process. The caller numbers the
/// memories. 0: the neighbours read the window instead.
using Places = std::array<std::uint64_t, 2>;
inline constexpr std::uint64_t kInProcess = std::uint64_t{1} << 63;
/// Place of a memory that a rank has withdrawn.
inline constexpr std::uint64_t kWithdrawn = UINT64_MAX;

/// The head of one rank's call. The rank's neighbours poll `arrivals` until the rank has arrived in
/// the call.
struct alignas(64) CallHead {
  static constexpr std::size_t kInlineBytes = 48;

  std::atomic<std::uint64_t> arrivals{0};
  /// Fingerprint of the rank's calls up to and including this one. Ranks whose fingerprints differ
  /// have made different calls.
  std::uint64_t fingerprint = 0;
  /// The call's publication, if it fits here; otherwise the call's Places.
  std::byte smallest[kInlineBytes];
};
static_assert(sizeof(CallHead) == 64);

/// The record of one call in the trail (see above).
struct alignas(64) CallTrace {
  std::uint64_t fingerprint = 0;
  std::byte label[kLabelBytes];
};
static_assert(sizeof(CallTrace) == 64);

/// The front of a rank's range: the heads, followed by the trail. Each head and each record of the
/// trail occupies one cache line, whose size in bytes is `line`. The row of blocks follows at the
/// next multiple of the block size.
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
  /// Size of the front in bytes. The blocks after the front are aligned: a range's memory begins
  /// kLine bytes after a page boundary, and the front ends a multiple of kBlockBytes after that
  /// boundary.
  static constexpr std::size_t bytes(std::size_t line) {
    const std::size_t all = kLine + 3 * kDepth * line;
    return (all + kBlockBytes - 1) / kBlockBytes * kBlockBytes - kLine;
  }

 private:
  std::byte* memory_;
  std::size_t line_;
};

/// Size in bytes of a range for a window in which one call can publish `call_bytes`. It holds the
/// publications of two such calls, because otherwise every call would have to wait for all
/// neighbours.
inline std::size_t window_bytes(std::size_t call_bytes, std::size_t line = line_bytes()) {
  return WindowFront::bytes(line) + 2 * call_bytes;
}

/// Assigns to each call a place: a range of blocks in a rank's row of blocks (see above). The
/// number of blocks in a place is a power of two, and a place starts at a multiple of its size. A
/// call's place therefore never overlaps that of the previous call.
class BlockRow {
 public:
  static constexpr std::size_t kBlockBytes = WindowFront::kBlockBytes;

  /// `bytes`: size of the row; a power of two, at least two blocks.
  explicit BlockRow(std::size_t bytes);

  struct Place {
    std::size_t offset = 0;  ///< Offset of the place in the row, in bytes.
    /// Number of the last call that used any part of the place; 0: none.
    std::uint64_t last_use = 0;
  };
  /// Assigns a place to the call with number `call`, which must be greater than the numbers of all
  /// earlier calls. `bytes` must be at most half of the row.
  Place take(std::size_t bytes, std::uint64_t call);

 private:
  std::vector<std::uint64_t> last_use_;  // for each block: number of the last call that used it
  std::size_t next_ = 0;                 // index of the block after the last place taken
};

/// This rank's view of its group's window: its own memory and that of its neighbours. Used under
/// the engine's progress lock. Neighbours are identified by their rank in the group.
class Window {
 public:
  struct Neighbour {
    int rank;
    PeerRange range;
    Bell bell;
    /// The memory of `range`, or another mapping of the same memory.
    std::span<std::byte> memory = range.memory();
    /// The neighbour's heap, and its offset in the neighbour's arena; null if this rank does not
    /// read it. Must outlive the window.
    SparseMapping* heap = nullptr;
    std::size_t heap_begin = 0;
    /// The memory of the neighbour's process; the memory of no process if this rank does not read
    /// it.
    PeerMemory process = {};
  };

  /// `call_bytes`: maximum number of bytes that a call can publish, equal on all ranks; a power of
  /// two, at least one block. Throws CorruptionError if a neighbour's range is too small for
  /// publications of this size.
  Window(int group_size, Range own, std::vector<Neighbour> neighbours, std::size_t call_bytes,
         std::size_t line = line_bytes());
  /// The caller owns this rank's memory `own`, which must initially be zero.
  Window(int group_size, std::span<std::byte> own, std::vector<Neighbour> neighbours,
         std::size_t call_bytes, std::size_t line = line_bytes());

  std::size_t call_bytes() const { return call_bytes_; }

  /// Begins a call in which this rank arrives `arrivals` times and publishes at most `published`
  /// bytes at a time. `places`: where the neighbours find this rank's memories.
  void begin(std::uint32_t arrivals, std::size_t published, std::uint64_t fingerprint,
             const Places& places = {});
  /// True if neighbours read this rank's memory number `memory` where it lies, so that nothing
  /// needs to be written to the window. Always false for calls whose publication fits into the
  /// head.
  bool is_read_in_place(std::size_t memory) const { return places_[memory] != 0; }
  /// True if that applies to any of this rank's memories.
  bool is_read_in_place() const { return places_ != Places{}; }
  /// Returns the address of the bytes [begin, begin + bytes) of memory number `memory` of the
  /// neighbour; null if the neighbour has published them in the window. The neighbour must have
  /// arrived in this call. Throws CorruptionError if the bytes do not lie in the neighbour's heap,
  /// and PeerError if the neighbour has withdrawn the memory.
  const std::byte* memory_of(int rank, std::size_t memory, std::size_t begin,
                             std::size_t bytes) const;
  /// Copies the bytes from `begin` on of memory number `memory` of the neighbour, if the memory
  /// lies in the neighbour's process outside of its heap. Otherwise returns false. The neighbour
  /// must have arrived in this call. Throws PeerError if this rank cannot read the memory, or if
  /// the neighbour has withdrawn it.
  bool copy_from_process(int rank, std::size_t memory, std::size_t begin,
                         std::span<std::byte> to) const;
  /// Throws PeerError if the neighbour has withdrawn its memory number `memory`. Must be called
  /// after each read, because the data may have changed if the memory was withdrawn meanwhile.
  void require_kept(int rank, std::size_t memory) const;
  /// Withdraws this rank's memories, because its call has failed. Afterwards the caller may change
  /// them.
  void withdraw() noexcept;
  /// Opens the call's memory for writing, once all neighbours have finished reading the memory's
  /// previous content. Returns true if the memory is open.
  bool open();
  bool is_open() const { return open_ && stray_ < 0; }
  /// Rank of a neighbour whose arrival open() still waits for; -1 if there is none.
  int late() const;
  /// Ends the call, so that the next one may begin.
  void end();

  /// Memory for this rank's description of the call, which neighbours read if they have made a
  /// different call. Must be written after open() and before arrive().
  std::span<std::byte, kLabelBytes> label() {
    return std::span<std::byte, kLabelBytes>(trace_of(own_view_, call_).label, kLabelBytes);
  }
  /// This rank's memory for publications of the call. Requires is_open().
  std::byte* own() { return own_data_; }
  void arrive();

  /// True if the neighbour has arrived at least `mark` times in this call.
  bool arrived(int rank, std::uint32_t mark) const {
    return head_of(rank, call_).arrivals.load(std::memory_order_acquire) >= base_ + mark;
  }
  /// True if the neighbour has made the same calls as this rank, up to and including this one. The
  /// neighbour must have arrived in this call.
  bool same_calls(int rank) {
    if (head_of(rank, call_).fingerprint != fingerprint_) return false;
    views_[static_cast<std::size_t>(rank)].compared = call_;
    return true;
  }
  const std::byte* published_by(int rank) const;

  /// Rank of a neighbour that open() found to have made a different call earlier; -1 if there is
  /// none.
  int strayed() const { return stray_; }

  /// Descriptions of the first call in which this rank and a neighbour made different calls.
  struct Divergence {
    std::span<const std::byte, kLabelBytes> theirs;
    /// Description of this rank's call; valid only if `is_over`.
    std::span<const std::byte, kLabelBytes> ours;
    bool is_over;  ///< True if this call precedes the current call.
  };
  /// Requires that strayed() returns `rank`, or that `rank` has arrived in this call with a
  /// different fingerprint.
  Divergence divergence_of(int rank) const;

 private:
  struct View {
    WindowFront front;
    std::byte* row = nullptr;
    SparseMapping* heap = nullptr;  ///< See Neighbour.
    std::size_t heap_begin = 0;
    PeerMemory process = {};
    std::uint64_t compared = 0;  ///< Number of the last call known to be the same on both ranks.
  };

  const CallHead& head_of(int rank, std::uint64_t call) const {
    return views_[static_cast<std::size_t>(rank)].front.head(call);
  }
  static CallTrace& trace_of(const View& view, std::uint64_t call) {
    return view.front.trace(call);
  }
  /// Where a head says that memory number `memory` lies.
  static std::atomic<std::uint64_t>& place_in(CallHead& head, std::size_t memory) {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(head.smallest)[memory];
  }
  std::uint64_t place_of(int rank, std::size_t memory) const {
    return place_in(views_[static_cast<std::size_t>(rank)].front.head(call_), memory)
        .load(std::memory_order_relaxed);
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

  // Calls are numbered from 1.
  std::uint64_t call_ = 0;
  std::uint64_t base_ = 0;  // number of this rank's arrivals in earlier calls
  // for each of the last kDepth calls: this rank's count of arrivals after it first arrived in the
  // call
  std::uint64_t first_arrivals_[kDepth]{};
  // Number of the call in which all neighbours must have arrived before open() succeeds.
  std::uint64_t awaited_ = 0;
  std::uint32_t arrivals_ = 0;  // number of times that this rank arrives in this call
  std::uint32_t arrived_ = 0;   // number of times that this rank has arrived in this call so far
  bool open_ = false;
  int stray_ = -1;

  BlockRow row_;
  bool in_head_ = true;     // true if publications of the call fit into its head
  std::size_t offset_ = 0;  // if not in_head_: offset of the publications in the row
  Places places_{};         // where neighbours read this rank's memories in this call

  std::uint64_t fingerprint_ = 0;
  std::byte* own_data_ = nullptr;
};

}  // namespace mccl::node
