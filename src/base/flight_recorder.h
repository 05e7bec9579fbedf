// The flight recorder: a ring buffer of a rank's last calls. It is always on, and shows what a job
// did before it stopped.
//
// The thread that holds the engine's progress lock writes. Any thread may read at any time: a
// reader skips a slot that changes while the reader copies it (each slot has a sequence lock).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "mccl/types.h"

namespace mccl {

/// The record of one call.
struct FlightEntry {
  /// A call is `enqueued` if a GPU carries it out without the host. The end of such a call is not
  /// recorded.
  enum State : std::uint8_t { queued, running, done, failed, enqueued };

  /// Number of the collective in its group, or of the message between its two ranks; below 2^48.
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  /// The three times below are in nanoseconds of the steady clock, or in cycles (see cycle_count())
  /// if `in_cycles` is true; 0 if unknown.
  bool in_cycles = false;
  std::int64_t submitted = 0;
  std::int64_t started = 0;
  std::int64_t ended = 0;
  std::uint32_t group = 0;     ///< Index of the group in this recorder.
  std::uint8_t algorithm = 0;  ///< Value of FlightRecorder::index_of(); 0 if unknown.
  Collective collective = Collective::barrier;
  ReduceKind kind = ReduceKind::sum;
  DType dtype = DType::u8;
  State state = queued;
  std::int32_t peer = -1;       ///< The other rank of a message, or the root of a collective.
  std::int32_t waits_for = -1;  ///< A rank of the group that the call waited for; -1 for none.
  std::uint16_t site = 0;       ///< CallSite::number of the place in the program; 0 if unknown.
};

/// A group whose calls are recorded.
struct FlightGroup {
  std::string name;
  std::uint64_t id = 0;           ///< Identifies the group; the same on all its members.
  int rank = 0;                   ///< This process's rank in the group.
  std::vector<int> members = {};  ///< The rank of each member in the job.
  /// The transport to each member; empty for this rank.
  std::vector<std::string> transports = {};
};

/// Identifies the process whose calls are recorded.
struct FlightOrigin {
  std::string job;  ///< Differs between jobs; the same on all ranks of a job.
  std::string host;
  int rank = 0;
  int size = 1;
};

class FlightRecorder {
 public:
  static constexpr std::size_t kCalls = 4096;
  /// Maximum number of groups kept. Calls of older groups are shown without the group's name.
  static constexpr std::size_t kMostGroups = 4096;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  explicit FlightRecorder(FlightOrigin origin);

  const FlightOrigin& origin() const { return origin_; }
  /// Adds a group and returns its index. May be called from any thread.
  std::uint32_t add_group(FlightGroup group);
  /// Returns the value of FlightEntry::algorithm for the name `algorithm`, a text that must never
  /// be freed. Returns 0 once 255 names are in use. May be called from any thread.
  std::uint8_t index_of(std::string_view algorithm);

  /// The name whose index_of() is `index`; empty if there is none. May be called from any thread.
  std::string_view algorithm_at(std::size_t index) const;

  /// Writes a call and returns its number. `number` is the number that an earlier write() of this
  /// call returned, or kNone for a new call. Returns a new number if the ring has overwritten the
  /// earlier entry. Must not be called by two threads at the same time.
  /// Always inlined, so that the entry stays in registers.
  [[gnu::always_inline]] std::uint64_t write(const FlightEntry& entry,
                                             std::uint64_t number = kNone) noexcept {
    const Words words = packed(entry);
    const std::uint64_t next = next_.load(std::memory_order_relaxed);
    if (number == kNone || number + kCalls <= next) {
      number = next;
      next_.store(next + 1, std::memory_order_relaxed);
    }
    Slot& slot = slots_[number % kCalls];
    const std::uint64_t before = slot.version.load(std::memory_order_relaxed);
    const std::uint64_t after = next_version(before, number);
    slot.version.store(after - 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t i = 0; i < words.size(); ++i) {
      slot.words[i].store(words[i], std::memory_order_relaxed);
    }
    slot.version.store(after, std::memory_order_release);
    // The ring is larger than the core's first-level cache. Without the prefetch, the next write()
    // would wait until its slot is in the cache.
    __builtin_prefetch(&slots_[(number + 1) % kCalls], 1);
    return number;
  }

  /// Number of calls written so far.
  std::uint64_t size() const { return next_.load(std::memory_order_relaxed); }
  /// Returns the call with this number; nothing if the ring has overwritten it or if it is being
  /// written.
  std::optional<FlightEntry> read(std::uint64_t number) const noexcept;

  /// Returns the record as JSON. `reason` states why the record is written, for example "asked" if
  /// it was requested.
  std::string to_json(std::string_view reason) const;

 private:
  using Words = std::array<std::uint64_t, 7>;

  static FlightEntry unpack(const Words& words);
  static constexpr int kSiteBit = 48;

  static constexpr int kWriteBits = 16;
  /// Returns the version of a slot after the next write of call `number`: even, and not 0.
  static std::uint64_t next_version(std::uint64_t before, std::uint64_t number) {
    constexpr std::uint64_t kWrites = (std::uint64_t{1} << kWriteBits) - 1;
    const std::uint64_t writes = before >> kWriteBits == number ? before & kWrites : 0;
    return number << kWriteBits | (writes == kWrites - 1 ? 2 : writes + 2);
  }
  /// True if the slot contains call `number` and is not being changed.
  static bool contains(std::uint64_t version, std::uint64_t number) {
    return version != 0 && version >> kWriteBits == number && version % 2 == 0;
  }

  /// `version` is 0 if nothing was written. Otherwise its upper 48 bits are the call's number. Its
  /// lower 16 bits grow by 2 for each write of this call, and are odd while the slot changes. A
  /// reader therefore notices any write that happens while it copies the slot.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> version{0};
    std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Words>> words{};
  };
  static_assert(sizeof(Slot) == 64);

  /// Packs with shifts: the processor stalls if it loads a word whose parts were just stored.
  [[gnu::always_inline]] static Words packed(const FlightEntry& entry) {
    const auto at = [](auto value, int bit) { return static_cast<std::uint64_t>(value) << bit; };
    return {at(entry.sequence, 0) | at(entry.site, kSiteBit),
            entry.bytes,
            at(entry.submitted, 0),
            at(entry.started, 0),
            at(entry.ended, 0),
            at(entry.group, 0) | at(entry.algorithm, 32) | at(entry.collective, 40) |
                at(entry.kind, 44) | at(entry.dtype, 48) | at(entry.state, 56) |
                at(entry.in_cycles, 60),
            at(static_cast<std::uint32_t>(entry.peer), 0) | at(entry.waits_for, 32)};
  }

  const FlightOrigin origin_;
  const Clock::time_point made_;
  const std::int64_t made_cycles_;
  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> next_{0};

  mutable std::mutex mutex_;                      // guards the members below
  std::vector<std::string_view> algorithms_{""};  // indexed by FlightEntry::algorithm
  std::map<std::uint32_t, FlightGroup> groups_;
  std::uint32_t group_count_ = 0;
};

}  // namespace mccl
