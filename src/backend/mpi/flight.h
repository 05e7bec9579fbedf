// An MPI call in flight: its requests, and the memory that MPI uses until they have completed.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/mpi/library.h"
#include "engine/calls/operation.h"

namespace mccl::mpi {

/// The communicator of a call, and MPI's limits for the call.
struct CallCommunicator {
  const MpiLibrary* library = nullptr;
  Handle comm = 0;
  /// A communicator of the same ranks on which they compare their calls. There, MPI matches a
  /// comparison with nothing but a comparison.
  Handle comparisons = 0;
  int rank = 0;
  int size = 1;
  /// The largest tag that MPI allows. MCCL reserves the upper half of these tags for calls that its
  /// bindings make internally.
  int largest_tag = 0;
  /// Maximum number of elements in one MPI call. Longer data are sent in pieces.
  std::size_t most = 0;
};

/// First tag of the upper half of MPI's tags. Collectives that one MPI call cannot carry out are
/// exchanged as messages with the tag below this one.
constexpr int half_of_tags(int largest) { return largest / 2; }

/// Converts the call's tag to a tag of MPI. Throws InvalidArgument if the call's tag is too large.
int tag_of(const CallCommunicator& place, const engine::Call& call);

/// A message that this rank receives. MPI begins to receive it only after it has arrived and its
/// size is known: Open MPI 4.1 writes a message of 4 KiB or more past the end of a shorter buffer.
struct Receive {
  int peer = 0;  ///< A rank, or Abi::any_source.
  int tag = 0;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

/// A Flight is used by one thread at a time. It must not be moved or destroyed before it has ended,
/// because MPI reads and writes its memory.
class Flight {
 public:
  /// Maximum size in bytes of a call whose data MPI reads and writes in the Flight's own memory,
  /// not in the caller's. If such a call is abandoned, MPI has no pointer to the caller's memory.
  static constexpr std::size_t kSmallBytes = 4096;

  Flight() = default;
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  /// Begins the call. If `waits` is true, uses MPI's blocking function for collectives other than a
  /// barrier. `place` must outlive the flight. Throws InvalidArgument for a tag that is too large,
  /// and errors of MPI.
  void begin(const CallCommunicator& place, const engine::Request& request, bool waits = false);
  /// Begins to compare `fingerprint`, that of this rank's next call, with those of all other ranks.
  void compare(const CallCommunicator& place, std::uint64_t fingerprint);
  /// True if all ranks have passed the same fingerprint to compare(), whose test() has returned
  /// true. All ranks get the same answer.
  bool agrees() const;

  /// Returns true if all messages have arrived and all requests have ended.
  bool test() {
    if (!receives_.empty()) match_arrived();
    while (ended_ < requests_.size()) {
      if (!test(requests_[ended_])) return false;
      ++ended_;
    }
    return receives_.empty();
  }
  /// Writes the result to the caller's output. Called once test() has returned true. Throws
  /// MismatchError if a received message and the memory for it differ in size.
  void land();

  /// The message that must arrive before MPI can begin to receive it; null if there is none.
  const Receive* awaits() const { return receives_.empty() ? nullptr : &receives_.front(); }
  /// Makes test() of a receive from any rank ignore messages from these ranks, because earlier
  /// receives have a claim to them.
  void ignore(std::vector<int> ranks) { ignored_ = std::move(ranks); }
  /// Gives up the messages that have not arrived.
  void cancel() { receives_.clear(); }
  /// True if MPI may still access memory of the caller.
  bool holds_caller() const { return !own_memory_ && ended_ < requests_.size(); }

  /// Rank of the sender of the message that has arrived.
  int source() const { return source_; }

 private:
  friend class Beginning;

  bool test(Handle& request) {
    try {
      return place_->library->test(request);
    } catch (const Error&) {
      ++ended_;  // a request that fails has completed: MPI no longer uses its memory
      throw;
    }
  }
  void match_arrived();
  bool match(const Receive& receive);
  std::optional<Arrival> find(const Receive& receive) const;
  std::pair<int, Handle> bytes_of(std::size_t bytes);
  std::byte* memory(std::size_t bytes);
  void free_long_types();
  void clear();

  const CallCommunicator* place_ = nullptr;
  /// Messages that have not arrived. Those of one sender are consecutive and in its order.
  std::vector<Receive> receives_;
  std::vector<int> ignored_;
  std::vector<Handle> requests_;
  std::size_t ended_ = 0;
  int source_ = -1;
  bool own_memory_ = false;

  // Members with which land() delivers the result.
  DType dtype_ = DType::u8;
  std::byte* result_ = nullptr;  ///< If not null, land() copies the data there to `target_`.
  void* target_ = nullptr;
  std::size_t target_bytes_ = 0;
  bool divides_ = false;
  std::string mismatch_;  ///< How a message differs from the memory for it; empty if none does.
  std::vector<Handle> long_types_;

  alignas(16) std::array<std::byte, 2 * kSmallBytes> small_;
  std::vector<std::unique_ptr<std::byte[]>> large_;
  std::vector<int> counts_;  ///< Counts and offsets, which MPI reads until the call has ended.
};

}  // namespace mccl::mpi
