// A call that was handed over, behind its Work.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/mpi/flight.h"
#include "backend/mpi/group_state.h"
#include "backend/request.h"
#include "base/clock.h"
#include "base/work_state.h"

namespace mccl::mpi {

class Engine;

/// For messages, such as "all_reduce #2 (sum of 10 f32)"; `number` counts a group's collectives.
std::string describe(const Request& request, std::uint64_t number);

/// All but its WorkState is of whoever drives, once it has been submitted.
class Call final : public detail::WorkState {
 public:
  Call(std::shared_ptr<Engine> its_engine, std::shared_ptr<GroupState> its_group,
       const Request& what);

  std::string description() const override { return describe(request_, number); }
  const Request& request() const { return request_; }
  void came_from(int rank) { set_source(rank); }

  const std::shared_ptr<GroupState> group;
  const std::shared_ptr<Engine> engine;
  std::unique_ptr<Flight> flight;
  std::uint64_t number = 0;  ///< Among the group's collectives.
  Clock::time_point submitted;
  Clock::time_point begun;
  Clock::time_point deadline = Clock::time_point::max();
  /// Once its group has failed: until when MPI may end it by itself.
  Clock::time_point last_moment = Clock::time_point::max();
  std::chrono::milliseconds timeout{0};
  bool caller_waits = false;
  /// MPI is to wait for its end: first all ranks gather, then a thread of the group's makes the
  /// call.
  bool is_bulk = false;
  std::atomic<bool> working = false;    ///< That thread has it.
  bool cancelling = false;              ///< MPI was asked to take it back.
  std::atomic<bool> held_back = false;  ///< Until its coalescing ends.

 protected:
  void help(Clock::time_point until) override;

 private:
  const std::vector<std::size_t> counts_;
  const std::vector<std::size_t> out_counts_;
  Request request_;
};

}  // namespace mccl::mpi
