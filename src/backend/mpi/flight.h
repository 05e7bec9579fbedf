// A call under way in MPI: its requests, and the memory that MPI uses until they have ended.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/mpi/library.h"
#include "backend/mpi/operations.h"
#include "engine/calls/operation.h"

namespace mccl::mpi {

/// Where a call takes place.
struct Place {
  Library* library = nullptr;
  const Operations* operations = nullptr;
  Handle comm = 0;
  int rank = 0;
  int size = 1;
  /// The largest tag of MPI's; half of the tags are for calls of the bindings' own.
  int largest_tag = 0;
  /// The most elements that MPI counts in one call; what is longer goes in pieces.
  std::size_t most = 0;
};

/// Where the upper half of the tags begins; the one before is for parts of collectives that are too
/// long for one call.
constexpr int half_of_tags(int largest) { return largest / 2; }

/// The tag as MPI is given it. Throws InvalidArgument where MPI has none so large.
int tag_of(const Place& place, const engine::Call& call);

/// Used by one thread at a time. It stays where it is until it has ended, since MPI knows its
/// memory.
class Flight {
 public:
  /// Up to here a call's data go through memory of the flight's own, so that a call which is given
  /// up leaves nothing of the caller's with MPI.
  static constexpr std::size_t kSmallBytes = 4096;

  Flight() = default;
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  /// Begins the call, or with `waits` makes it by those of MPI's functions that wait for its end.
  /// `place` outlives the flight. Throws LibraryError.
  void begin(const Place& place, const engine::Task& task, bool waits = false);
  /// Begins to wait for all ranks to come, as a call for which MPI is to wait needs it.
  void gather(const Place& place);
  /// Whether all of it has ended.
  bool test() {
    while (ended_ < requests_.size()) {
      if (!test(requests_[ended_])) return false;
      ++ended_;
    }
    return true;
  }
  /// Once that is so: writes the result where the caller wants it. Throws MismatchError for a
  /// message of another size.
  void land();

  /// Asks MPI to take a receive back; test() tells when it has, and taken_back() whether.
  void cancel();
  bool taken_back() const { return arrival_.cancelled; }
  /// Whether MPI still knows memory of the caller's.
  bool holds_caller() const { return !own_memory_ && ended_ < requests_.size(); }

  int source() const { return arrival_.source; }

 private:
  friend class Beginning;

  bool test(Handle& request) {
    try {
      return place_->library->test(request, wants_arrival_ ? &arrival_ : nullptr);
    } catch (const LibraryError&) {
      ++ended_;  // MPI says how it ended, and has let go of its memory
      throw;
    }
  }
  std::byte* memory(std::size_t bytes);
  void clear();

  const Place* place_ = nullptr;
  std::vector<Handle> requests_;
  std::size_t ended_ = 0;
  Arrival arrival_;
  bool wants_arrival_ = false;
  bool own_memory_ = false;

  // What remains to be done with the result.
  DType dtype_ = DType::u8;
  std::byte* result_ = nullptr;  ///< To be copied to the output, unless null.
  void* target_ = nullptr;
  std::size_t target_bytes_ = 0;
  bool divides_ = false;
  Handle long_type_ = 0;
  bool has_long_type_ = false;

  alignas(16) std::array<std::byte, 2 * kSmallBytes> small_;
  std::unique_ptr<std::byte[]> large_;
  std::vector<int> counts_;  ///< Of calls with counts, which MPI reads until they have ended.
};

}  // namespace mccl::mpi
