// The window of a group's ranks on one node: memory of each that all the others read.
//
// Every rank has two banks, used by its calls in turn, so that a call can begin while a slow
// neighbour still reads what was published for the one before. A bank begins with a line that holds
// the count of arrivals, the label of the call, and room for a small publication: a small call
// moves one cache line. Arrivals are counted over the life of the window, never back to 0.
//
// A rank opens a bank again only when every neighbour has arrived in the call after the one that
// used it last: all that it had to read there, it has read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "transport/shm/arena.h"
#include "transport/shm/bell.h"

namespace mccl::transport::shm {

/// What a rank says of its call to the others, opaque here.
inline constexpr std::size_t kLabelBytes = 48;

/// The first lines of a bank.
struct BankHead {
  static constexpr std::size_t kInlineBytes = 48;

  std::atomic<std::uint64_t> arrivals{0};
  std::uint64_t fingerprint = 0;  ///< Of the label: neighbours that differ are not in one call.
  std::byte small[kInlineBytes];  ///< A small publication; a larger one is behind the head.
  alignas(kLine) std::byte label[kLabelBytes];
};
static_assert(sizeof(BankHead) == 2 * kLine);

/// Bytes of a range for a window whose banks hold that many; and the reverse.
constexpr std::size_t window_bytes(std::size_t bank_bytes) {
  return 2 * (sizeof(BankHead) + bank_bytes);
}

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

  /// `bank_bytes`, a multiple of kLine, is what all have agreed on. Throws CorruptionError when a
  /// neighbour's range is smaller than that takes.
  Window(int group_size, Range own, std::vector<Neighbour> neighbours, std::size_t bank_bytes);
  /// The same where the caller keeps this rank's own memory, which begins as zeros.
  Window(int group_size, std::span<std::byte> own, std::vector<Neighbour> neighbours,
         std::size_t bank_bytes);

  std::size_t bank_bytes() const { return bank_bytes_; }

  /// A call begins: it arrives `arrivals` times and publishes at most `published` bytes at a time.
  void begin(std::uint32_t arrivals, std::size_t published, std::uint64_t fingerprint,
             std::span<const std::byte, kLabelBytes> label);
  /// Whether its bank may be written now; stays true for the rest of the call.
  bool open();
  bool is_open() const { return open_ && stray_ < 0; }
  /// A neighbour that open() waits for; -1 when there is none.
  int late() const;
  /// The call is over; a call that fails is never over.
  void end();

  /// This rank's memory for the call. Requires open().
  std::byte* own() { return own_data_; }
  void arrive();

  /// Whether the neighbour has arrived so often in this call.
  bool arrived(int rank, std::uint32_t mark) const {
    return head_of(rank).arrivals.load(std::memory_order_acquire) >= base_ + mark;
  }
  /// Of a neighbour that has arrived in this call:
  const std::byte* published_by(int rank) const;
  bool same_call(int rank) const { return head_of(rank).fingerprint == fingerprint_; }
  std::span<const std::byte, kLabelBytes> label_of(int rank) const;

  /// Once open: a neighbour whose last call was another than this rank's, which nobody may have
  /// noticed then; -1 when there is none. And what it said of that call.
  int strayed() const { return stray_; }
  std::span<const std::byte, kLabelBytes> label_before(int rank) const;

 private:
  struct View {
    std::byte* banks[2] = {nullptr, nullptr};
  };

  const BankHead& head_of(int rank) const { return head_of(rank, bank_); }
  const BankHead& head_of(int rank, std::size_t bank) const {
    return *reinterpret_cast<const BankHead*>(views_[static_cast<std::size_t>(rank)].banks[bank]);
  }
  BankHead& own_head(std::size_t bank) const {
    return *reinterpret_cast<BankHead*>(own_banks_.banks[bank]);
  }
  View view_of(std::span<std::byte> memory) const;
  int find_stray() const;

  const std::size_t bank_bytes_;
  Range own_;
  std::vector<Neighbour> neighbours_;
  View own_banks_;
  std::vector<View> views_;  // by rank of the group
  std::size_t bank_ = 0;
  std::uint64_t base_ = 0;       // arrivals before this call
  std::uint64_t must_have_ = 0;  // arrivals of all neighbours before the bank may be opened
  std::uint32_t arrivals_ = 0;   // of the call in all
  std::uint32_t arrived_ = 0;    // so far
  bool open_ = false;
  int stray_ = -1;
  bool is_inline_ = false;
  std::uint64_t fingerprint_ = 0;
  std::uint64_t fingerprint_before_ = 0;
  std::byte label_[kLabelBytes] = {};
  std::byte* own_data_ = nullptr;
};

}  // namespace mccl::transport::shm
