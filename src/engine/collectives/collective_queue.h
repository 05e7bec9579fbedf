// The collectives of a group in call order. The first one runs, according to its plan or through
// the group's carrier.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/log.h"
#include "base/rank.h"
#include "engine/calls/call_history.h"
#include "engine/calls/carrier.h"
#include "engine/calls/operation_list.h"
#include "engine/collectives/executor.h"
#include "engine/collectives/group_window.h"
#include "engine/collectives/plan.h"
#include "engine/links/channel.h"
#include "mccl/metrics.h"

namespace mccl::engine {

/// The pending collectives of one group, with the plans and the executor that run them. Used under
/// the engine's progress lock.
class CollectiveQueue {
 public:
  /// Everything passed by reference must outlive this object.
  CollectiveQueue(Channels& channels, GroupWindow& window, schedule::Facts facts, const Log& log,
                  Metrics& metrics);

  bool empty() const { return calls_.empty(); }
  /// The pending calls. The first one is in flight; the others wait.
  const OperationList& calls() const { return calls_; }
  bool running() const { return carried_ != Carried::no || executor_.running(); }

  void push(std::shared_ptr<Operation> call) { calls_.push_back(std::move(call)); }
  /// Makes `carrier` carry out all later collectives. The carrier must outlive them. The queue must
  /// be empty.
  void carry_by(Carrier& carrier) { carrier_ = &carrier; }
  /// Begins the first call. None may be running, and GroupWindow::settled() must be true.
  void begin_first();
  /// Advances the running call. Returns false if it made no progress. Throws like
  /// Executor::advance() and Carrier::advance().
  bool advance() {
    if (carried_ == Carried::no) return executor_.advance();
    if (carried_ == Carried::runs && carrier_->advance()) carried_ = Carried::ended;
    return carried_ == Carried::ended;
  }
  /// Removes and returns the running call if it has finished; else null.
  std::shared_ptr<Operation> take_finished();
  /// Removes and returns all calls without ending them.
  OperationList drop_all();

  /// Begins a call that its caller runs on its own thread; the queue must be empty. The caller must
  /// advance it until it has finished.
  void begin(Task& task, const Plan& plan);
  void begin_carried(Task& task);
  bool finished() const { return carried_ == Carried::ended || executor_.finished(); }
  void end() {
    if (executor_.running()) executor_.end();
    carried_ = Carried::no;
  }
  /// Puts a call that its caller's thread has begun at the front of the queue, where it continues.
  /// The Task of the call is now at another address.
  void adopt(std::shared_ptr<Operation> call);

  /// Returns the plan for a request. Valid until the next call of plan_for().
  const Plan& plan_for(const Request& request);
  const schedule::Facts& facts() const { return plans_.facts(); }
  void learn(schedule::Facts facts) { plans_.learn(std::move(facts)); }

  const CallHistory& history() const { return history_; }
  void watch(Sleep& sleep) { executor_.watch(sleep); }
  /// Members that the running call waits for.
  std::vector<GroupRank> waiting_for() const { return executor_.waiting_for(); }

  std::size_t scratch_bytes() const { return executor_.scratch_bytes(); }
  /// Releases memory kept for the next call. Returns false if there is no such memory. No call may
  /// be running.
  bool release();

 private:
  void tell(const Task& task, const Plan& plan);

  /// State of the collective that the carrier carries out, if any.
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
  bool told_ = false;  // true once the algorithm of the last plan has been reported
};

}  // namespace mccl::engine
