#include "engine/collectives/collective_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

/// Multiplies the input of a premul_sum by its factor, since schedules know only sums.
void multiply(Operation& call) {
  if (call.call.kind != ReduceKind::premul_sum || call.in.count == 0) return;
  call.multiplied.resize(call.in.bytes());
  kernels::scale(call.in.dtype, call.in.data, call.multiplied.data(), call.in.count, call.factor);
  call.in.data = call.multiplied.data();
  call.in_place = false;
}

}  // namespace

CollectiveQueue::CollectiveQueue(Channels& channels, GroupWindow& window, schedule::Facts facts,
                                 const Log& log, Metrics& metrics)
    : group_(channels.group()),
      log_(log),
      metrics_(metrics),
      plans_(std::move(facts)),
      executor_(channels, window, history_) {}

void CollectiveQueue::begin_first() {
  Operation& call = calls_.front();
  call.started = Clock::now();
  multiply(call);
  if (carrier_) return begin_carried(call);
  begin(call, plan_for(call));
}

/// Marks the call as running before the carrier begins it. A call that fails to begin thus ends
/// like one that fails later.
void CollectiveQueue::begin_carried(Task& task) {
  history_.started(task.call, true);
  carried_ = Carried::runs;
  task.traffic = {
      .bytes_sent = task.in.bytes(), .bytes_received = task.out.bytes(), .carried = true};
  carrier_->begin(task);
}

void CollectiveQueue::begin(Task& task, const Plan& plan) {
  history_.started(task.call);
  if (!told_) tell(task, plan);
  executor_.begin(task, plan);
}

std::shared_ptr<Operation> CollectiveQueue::take_finished() {
  if (!finished()) return nullptr;
  end();
  return calls_.pop_front();
}

OperationList CollectiveQueue::drop_all() {
  end();
  return std::exchange(calls_, {});
}

void CollectiveQueue::adopt(std::shared_ptr<Operation> call) {
  calls_.push_front(std::move(call));
  if (carried_ == Carried::no) executor_.moved_to(calls_.front());
}

const Plan& CollectiveQueue::plan_for(const Request& request) {
  if (const Plan* const last = plans_.same_as_last(request)) return *last;
  const Plan& plan = plans_.plan(problem_of(group_, request), size_of(request.call.dtype));
  told_ = told_ && &plan == plans_.last();
  plans_.used(plan, request);
  return plan;
}

/// Reports the algorithm, once for several calls in a row that use the same plan.
void CollectiveQueue::tell(const Task& task, const Plan& plan) {
  told_ = true;
  metrics_.record_algorithm(task.call.collective, schedule::name_of(plan.algorithm));
  if (!log_.enabled(LogLevel::debug)) return;
  log_.debug("{} of group '{}' uses algorithm {}", describe(task.call), group_.name,
             schedule::name_of(plan.algorithm));
}

bool CollectiveQueue::release() {
  if (executor_.scratch_bytes() == 0 && plans_.empty()) return false;
  executor_.release_scratch();
  plans_.clear();
  return true;
}

}  // namespace mccl::engine
