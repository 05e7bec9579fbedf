// One call in flight: the request, its memory and its deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/calls/conveyor.h"
#include "base/rank.h"
#include "base/work_state.h"
#include "engine/calls/call.h"
#include "engine/calls/traffic.h"
#include "kernels/unit.h"
#include "mccl/buffer.h"
#include "mccl/metrics.h"

namespace mccl::engine {

class GroupState;

/// Makes calls progress until they are done.
class CallDriver {
 public:
  virtual ~CallDriver() = default;
  /// Drives calls until `work` is done or `deadline` has passed. May return earlier if another
  /// thread drives.
  virtual void help(detail::WorkState& work, Clock::time_point deadline) = 0;
};

/// Returns time_point::max() if the timeout is not positive or is a year or more.
Clock::time_point deadline_after(Clock::time_point start, std::chrono::milliseconds timeout);

/// A request to the engine, and what it cost.
struct Task {
  Call call;
  ConstBuffer input;
  Buffer output;
  bool in_place = false;
  /// True if all parts are equal, call.count elements in total. `counts` is then empty.
  bool even = false;
  double factor = 1.0;                   ///< premul_sum: factor of the input.
  std::vector<std::size_t> counts;       ///< See schedule::Problem.
  std::vector<std::size_t> recv_counts;  ///< all_to_all only; see schedule::Problem.
  std::vector<std::byte> multiplied;     ///< premul_sum: the input times the factor.
  /// See CallOptions::left_out; null if the rest is not wanted.
  std::byte* left_out = nullptr;
  /// While the call runs, reports how much of the input has arrived and takes finished output. Null
  /// if the whole memory is available from the start.
  Conveyor* conveyor = nullptr;
  /// Processing unit that is tried for reductions before the host's kernels; null for none.
  std::shared_ptr<kernels::Unit> unit;

  Traffic traffic;
  double reduce_s = 0;

  /// The metrics of the call, without its times in the queue and in execution.
  CallSample sample() const;
};

/// Progress of a message. Used by Messages only.
struct MessageProgress {
  std::uint64_t number = 0;  ///< Number among the messages of its pair and direction, from 1.
  std::uint64_t order = 0;   ///< Number among all receives of the group, in call order.
  std::size_t pieces = 0;    ///< Pieces of a message that the receiver has granted.
  std::size_t begun = 0;     ///< Pieces that a lane sends or has sent.
  std::size_t ended = 0;     ///< Pieces that have been sent or received in full.
  std::vector<bool> arriving = {};  ///< Pieces that lanes receive, or have received.
};

/// A call in flight, and the state behind its Work. Filled by the caller's thread, then submitted
/// to the engine. Afterwards only the thread that holds the progress lock touches it, except for
/// the WorkState part.
struct Operation final : detail::WorkState, Task {
  explicit Operation(Task task) : Task(std::move(task)) {}

  std::shared_ptr<GroupState> group;
  std::weak_ptr<CallDriver> driver;
  /// True if the caller waits immediately, so no other thread needs to be woken.
  bool caller_waits = false;
  /// True if the call was made inside begin_coalescing() and has not been submitted yet. A wait for
  /// it would never end.
  std::atomic<bool> held_back{false};

  Clock::time_point submitted;
  Clock::time_point started;
  Clock::time_point deadline = Clock::time_point::max();

  MessageProgress message;
  std::vector<Work::Callback> callbacks;  ///< Callbacks still to run, once the call is done.

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
