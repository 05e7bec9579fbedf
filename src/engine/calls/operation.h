// One call on its way: what was asked, with which memory, until when.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/conveyor.h"
#include "base/rank.h"
#include "base/work_state.h"
#include "engine/calls/call.h"
#include "engine/calls/traffic.h"
#include "kernels/unit.h"
#include "mccl/buffer.h"
#include "mccl/metrics.h"

namespace mccl::engine {

class GroupState;

/// Drives calls along.
class CallDriver {
 public:
  virtual ~CallDriver() = default;
  /// Until `work` is done or `deadline` has passed, or for as long as this thread is needed.
  virtual void help(detail::WorkState& work, Clock::time_point deadline) = 0;
};

/// Never, for a timeout of nothing or of years.
Clock::time_point deadline_after(Clock::time_point start, std::chrono::milliseconds timeout);

/// What is asked of the engine, and what it took.
struct Task {
  Call call;
  ConstBuffer input;
  Buffer output;
  bool in_place = false;
  bool even = false;    ///< The ranks have equal parts of call.count elements, and no counts.
  double factor = 1.0;  ///< premul_sum: what to multiply the input by.
  std::vector<std::size_t> counts;       ///< As schedule::Problem.
  std::vector<std::size_t> recv_counts;  ///< all_to_all.
  std::vector<std::byte> multiplied;     ///< premul_sum: the input times the factor.
  /// As CallOptions::left_out; null where nothing is to be kept.
  std::byte* left_out = nullptr;
  /// Of memory that fills, and is fetched, while the call runs; null where all of it is there.
  Conveyor* conveyor = nullptr;
  /// What is asked before the host's own kernels are; null where nothing is.
  std::shared_ptr<kernels::Unit> unit;

  Traffic traffic;
  double reduce_s = 0;

  /// What the metrics want to know of it, but for times.
  CallSample sample() const;
};

/// How far a message has come; used by Messages alone.
struct MessageProgress {
  std::uint64_t number = 0;         ///< Among the messages of its pair and direction, from 1.
  std::uint64_t order = 0;          ///< Among all receives of the group, in the order of the calls.
  std::size_t pieces = 0;           ///< Of a message that the receiver has asked for.
  std::size_t begun = 0;            ///< Pieces that a lane sends, or has sent.
  std::size_t ended = 0;            ///< Pieces that have gone, or have come.
  std::vector<bool> arriving = {};  ///< By piece of a receive: a lane brings it, or has brought it.
};

/// Filled by the caller's thread, then handed to the engine; afterwards only the thread that holds
/// the progress lock touches it, except for the WorkState part.
struct Operation final : detail::WorkState, Task {
  explicit Operation(Task task) : Task(std::move(task)) {}

  std::shared_ptr<GroupState> group;
  std::weak_ptr<CallDriver> driver;
  /// The caller waits at once: nobody else need be woken.
  bool caller_waits = false;
  /// Its caller coalesces calls, and has not ended that yet: to wait for it would be for ever.
  std::atomic<bool> held_back{false};

  Clock::time_point submitted;
  Clock::time_point started;
  Clock::time_point deadline = Clock::time_point::max();

  MessageProgress message;
  std::vector<Work::Callback> callbacks;  ///< Once it is done: those that are still to run.

  std::string description() const override;
  void received_from(GroupRank rank) { set_source(rank.number()); }

 protected:
  void help(Clock::time_point until) override;

 private:
  friend class OperationList;
  std::shared_ptr<Operation> next_;
  Operation* previous_ = nullptr;
};

}  // namespace mccl::engine
