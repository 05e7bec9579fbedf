// An MPI call in flight: its requests, and the memory that MPI uses until they have completed.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/mpi/library.h"
#include "engine/calls/operation.h"

namespace mccl::mpi {

/// The communicator of a call, and MPI's limits for the call.
struct CallCommunicator {
  const MpiLibrary* library = nullptr;
  Handle comm = 0;
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
  /// Begins a barrier, which ends once all ranks have reached it. Used before a blocking call.
  void gather(const CallCommunicator& place);
  /// Returns true if all requests have ended.
  bool test() {
    while (ended_ < requests_.size()) {
      if (!test(requests_[ended_])) return false;
      ++ended_;
    }
    return true;
  }
  /// Writes the result to the caller's output. Called once test() has returned true. Throws
  /// MismatchError if a received message and the output differ in size.
  void land();

  /// Asks MPI to cancel a receive. Once test() returns true, taken_back() is true if the receive
  /// was cancelled, and false if a message had arrived.
  void cancel();
  bool taken_back() const { return arrival_.cancelled; }
  /// True if MPI may still access memory of the caller.
  bool holds_caller() const { return !own_memory_ && ended_ < requests_.size(); }

  int source() const { return arrival_.source; }

 private:
  friend class Beginning;

  bool test(Handle& request) {
    try {
      return place_->library->test(request, wants_arrival_ ? &arrival_ : nullptr);
    } catch (const Error&) {
      ++ended_;  // a request that fails has completed: MPI no longer uses its memory
      throw;
    }
  }
  std::byte* memory(std::size_t bytes);
  void clear();

  const CallCommunicator* place_ = nullptr;
  std::vector<Handle> requests_;
  std::size_t ended_ = 0;
  Arrival arrival_;
  bool wants_arrival_ = false;
  bool own_memory_ = false;

  // Members with which land() delivers the result.
  DType dtype_ = DType::u8;
  std::byte* result_ = nullptr;  ///< If not null, land() copies the data there to `target_`.
  void* target_ = nullptr;
  std::size_t target_bytes_ = 0;
  bool divides_ = false;
  Handle long_type_ = 0;
  bool has_long_type_ = false;

  alignas(16) std::array<std::byte, 2 * kSmallBytes> small_;
  std::unique_ptr<std::byte[]> large_;
  std::vector<int> counts_;  ///< Counts and offsets, which MPI reads until the call has ended.
};

}  // namespace mccl::mpi
