// One group as the engine has it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/mpi/flight.h"
#include "backend/mpi/worker.h"
#include "base/clock.h"
#include "mccl/metrics.h"

namespace mccl::mpi {

/// What a failure is thrown as.
enum class Kind : std::uint32_t { aborted, timeout, peer, mismatch, error };

std::exception_ptr exception_of(Kind kind, const std::string& text);
/// Of what was thrown.
Kind kind_of(const std::exception& error);

class Call;

struct GroupState {
  GroupState(std::uint64_t group_id, std::string group_name, std::vector<int> world_ranks)
      : id(group_id), name(std::move(group_name)), members(std::move(world_ranks)) {}

  const std::uint64_t id;  ///< The same on all members, and never used twice.
  const std::string name;
  const std::vector<int> members;  ///< As ranks of MPI_COMM_WORLD.
  Place place;                     ///< Set before the group is shared.
  std::chrono::milliseconds timeout{0};
  std::shared_ptr<Metrics> metrics;
  std::shared_ptr<Tally> tally;  ///< Of calls that end at once.

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// The first reason; empty while all is well.
  std::string failure() const;
  Kind failure_kind() const;
  /// True the first time, which counts. From any thread.
  bool fail(Kind kind, const std::string& reason);

  // Of whoever drives.
  std::uint64_t started = 0;  ///< Collectives.
  int under_way = 0;
  /// A call for which MPI is to wait, that has begun; the collectives after it wait for its end.
  std::shared_ptr<Call> bulk;
  std::deque<std::shared_ptr<Call>> waiting;
  /// So many collectives has this rank come to in MPI, apart from one that ranks gather for.
  std::uint64_t made() const;
  std::unique_ptr<Worker> worker;  ///< Once there has been such a call.
  /// How many collectives each member had made when it left; none where it has not.
  struct Departure {
    bool left = false;
    std::uint64_t made = 0;
    Clock::time_point seen;
  };
  std::vector<Departure> departures;
  bool someone_left = false;

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::string reason_;       // guarded by mutex_
  Kind kind_ = Kind::error;  // guarded by mutex_
};

}  // namespace mccl::mpi
