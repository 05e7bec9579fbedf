// The part of GroupState that runs its collectives one at a time, each by a plan
// (collectives/plan.h) or through the carrier (calls/carrier.h).
#include <algorithm>
#include <utility>

#include "engine/groups/group_state.h"
#include "kernels/reduce.h"

namespace mccl::engine {
namespace {

schedule::Problem problem_of(const Membership& group, const Request& request) {
  schedule::Problem problem;
  problem.collective = request.call.collective;
  problem.rank = group.rank.number();
  problem.size = group.size();
  problem.root = std::max(request.call.root, 0);
  if (request.even) {
    const auto ranks = static_cast<std::size_t>(group.size());
    problem.counts.assign(ranks, request.call.count / ranks);
    if (request.call.collective == Collective::all_to_all) {
      problem.recv_counts = problem.counts;
      problem.even = true;
    }
  } else if (request.counts.empty()) {
    problem.count = request.call.count;
  } else {
    problem.counts.assign(request.counts.begin(), request.counts.end());
    problem.recv_counts.assign(request.recv_counts.begin(), request.recv_counts.end());
  }
  problem.coding = request.call.coding;
  problem.in_place = request.call.collective == Collective::broadcast || request.in_place;
  return problem;
}

/// Multiplies the input of a premul_sum by its factor, because schedules compute only plain sums.
void multiply(Operation& call) {
  if (call.call.kind != ReduceKind::premul_sum || call.in.count == 0) return;
  call.multiplied.resize(call.in.bytes());
  kernels::scale(call.in.dtype, call.in.data, call.multiplied.data(), call.in.count, call.factor);
  call.in.data = call.multiplied.data();
  call.in_place = false;
}

}  // namespace

bool GroupState::advance_collectives(Clock::time_point now) {
  bool moved = false;
  while (!calls_.empty()) {
    if (!collective_runs()) {
      if (!window_ready()) break;
      begin_first();
    }
    moved |= advance_collective();
    if (!collective_has_finished()) break;
    end_collective();
    finish(calls_.pop_front());
    moved = true;
  }
  if (moved) collectives_moved_ = now;
  return moved;
}

void GroupState::begin_first() {
  const std::size_t scratch = executor_.scratch_bytes();
  Operation& call = calls_.front();
  call.started = Clock::now();
  multiply(call);
  if (carrier_) {
    begin_carried(call);
  } else {
    begin_planned(call, plan_for(call));
  }
  around_.completions.note(call, FlightEntry::running);
  if (executor_.scratch_bytes() != scratch) weigh();
}

/// Marks the call as running before the carrier begins it. A call that fails to begin thus ends
/// like one that fails later.
void GroupState::begin_carried(Task& task) {
  history_.started(task.call, true);
  carried_ = Carried::runs;
  task.flight.algorithm = algorithm_;
  task.traffic = {
      .bytes_sent = task.in.bytes(), .bytes_received = task.out.bytes(), .carried = true};
  carrier_->begin(task);
  if (CallHistory::is_mark(task.call)) compare_with_next(task.call);
}

void GroupState::begin_planned(Task& task, const Plan& plan) {
  history_.started(task.call);
  if (!algorithm_recorded_) record_algorithm(task, plan);
  task.flight.algorithm = algorithm_;
  executor_.begin(task, plan);
}

/// Returns true if the collective made progress or, with a carrier, once it has ended. Throws what
/// Executor::advance() or Carrier::advance() throws.
bool GroupState::advance_collective() {
  if (carried_ == Carried::no) return executor_.advance();
  if (carried_ == Carried::runs && carrier_->advance()) carried_ = Carried::ended;
  return carried_ == Carried::ended;
}

void GroupState::end_collective() {
  if (executor_.running()) executor_.end();
  carried_ = Carried::no;
}

/// Returns the plan for a request. The reference is valid until the next call of plan_for().
const Plan& GroupState::plan_for(const Request& request) {
  if (const Plan* const last = plans_.same_as_last(request)) return *last;
  const Plan& plan = plans_.plan(problem_of(membership_, request), size_of(request.call.dtype));
  algorithm_recorded_ = algorithm_recorded_ && &plan == plans_.last();
  plans_.used(plan, request);
  return plan;
}

/// Records the algorithm of the plan in the metrics and the log. Of consecutive calls with the same
/// plan, only the first is recorded.
void GroupState::record_algorithm(const Task& task, const Plan& plan) {
  algorithm_recorded_ = true;
  const std::string_view algorithm = schedule::name_of(plan.algorithm);
  around_.metrics.record_algorithm(task.call.collective, algorithm);
  algorithm_ = around_.completions.recorder().index_of(algorithm);
  if (!around_.log.enabled(LogLevel::debug)) return;
  around_.log.about(membership_.name)
      .debug("{} of group '{}' uses algorithm {}", describe(task.call), membership_.name,
             algorithm);
}

/// Releases the plans and the scratch memory that are kept for later calls. No call may be running.
void GroupState::release_plans() {
  if (executor_.scratch_bytes() == 0 && plans_.empty()) return;
  executor_.release_scratch();
  plans_.clear();
  weigh();
}

}  // namespace mccl::engine
