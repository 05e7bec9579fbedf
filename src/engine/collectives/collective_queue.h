// The collectives of a group, in the order of their calls: the first one runs, by its plan or by
// the group's carrier.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/log.h"
#include "base/rank.h"
#include "engine/calls/call_history.h"
#include "engine/calls/operation_list.h"
#include "engine/collectives/executor.h"
#include "engine/collectives/group_window.h"
#include "engine/collectives/plan.h"
#include "engine/groups/carrier.h"
#include "engine/links/channel.h"
#include "mccl/metrics.h"

namespace mccl::engine {

/// Used under the engine's progress lock.
class CollectiveQueue {
 public:
  /// All that is referred to outlives it.
  CollectiveQueue(Channels& channels, GroupWindow& window, schedule::Facts facts, const Log& log,
                  Metrics& metrics);

  bool empty() const { return calls_.empty(); }
  /// The first one is under way; the others wait.
  const OperationList& calls() const { return calls_; }
  bool running() const { return carried_ != Carried::no || executor_.running(); }

  void push(std::shared_ptr<Operation> call) { calls_.push_back(std::move(call)); }
  /// `carrier` carries out those to come, and outlives their use; while there are none.
  void carry_by(Carrier& carrier) { carrier_ = &carrier; }
  /// Requires that none runs, and that the group's window is settled.
  void begin_first();
  /// Does what can be done now for the one that runs. Throws as Executor::advance().
  bool advance() {
    if (carried_ == Carried::no) return executor_.advance();
    if (carried_ == Carried::runs && carrier_->advance()) carried_ = Carried::ended;
    return carried_ == Carried::ended;
  }
  /// The one that ran, when it has ended; else null.
  std::shared_ptr<Operation> take_finished();
  /// All of them, as they are.
  OperationList drop_all();

  /// A call that is run by its caller, beside an empty queue: until it has finished, the caller
  /// advances it.
  void begin(Task& task, const Plan& plan);
  void begin_carried(Task& task);
  bool finished() const { return carried_ == Carried::ended || executor_.finished(); }
  void end() {
    if (executor_.running()) executor_.end();
    carried_ = Carried::no;
  }
  /// That call goes on as the first one of the queue, from another place in memory.
  void adopt(std::shared_ptr<Operation> call);

  /// Lives until another plan is asked for.
  const Plan& plan_for(const Task& task);
  const schedule::Facts& facts() const { return plans_.facts(); }
  void learn(schedule::Facts facts) { plans_.learn(std::move(facts)); }

  const CallHistory& history() const { return history_; }
  void watch(Sleep& sleep) { executor_.watch(sleep); }
  /// The members that the call that runs waits for.
  std::vector<GroupRank> waiting_for() const { return executor_.waiting_for(); }

  std::size_t scratch_bytes() const { return executor_.scratch_bytes(); }
  /// Gives back what it keeps for the next call; while none runs. False when that was nothing.
  bool release();

 private:
  void tell(const Task& task, const Plan& plan);

  /// What has become of the collective that the carrier has.
  enum class Carried { no, runs, ended };

  const Membership& group_;
  const Log& log_;
  Metrics& metrics_;
  CallHistory history_;
  PlanCache plans_;
  Executor executor_;
  OperationList calls_;
  Carrier* carrier_ = nullptr;
  Carried carried_ = Carried::no;
  bool told_ = false;  // which way the last calls went
};

}  // namespace mccl::engine
