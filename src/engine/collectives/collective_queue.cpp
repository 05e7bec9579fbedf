#include "engine/collectives/collective_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/reduce.h"

namespace mccl::engine {
namespace {

schedule::Problem problem_of(const Membership& group, const Task& task) {
  schedule::Problem problem;
  problem.collective = task.call.collective;
  problem.rank = group.rank.number();
  problem.size = group.size();
  problem.root = std::max(task.call.root, 0);
  if (task.even) {
    const auto ranks = static_cast<std::size_t>(group.size());
    problem.counts.assign(ranks, task.call.count / ranks);
    if (task.call.collective == Collective::all_to_all) {
      problem.recv_counts = problem.counts;
      problem.even = true;
    }
  } else if (task.counts.empty()) {
    problem.count = task.call.count;
  } else {
    problem.counts = task.counts;
    problem.recv_counts = task.recv_counts;
  }
  problem.coding = task.call.coding;
  problem.in_place = task.call.collective == Collective::broadcast || task.in_place;
  return problem;
}

/// Multiplies the input of a premul_sum by its factor, since schedules know only sums.
void multiply(Operation& call) {
  if (call.call.kind != ReduceKind::premul_sum || call.input.count == 0) return;
  call.multiplied.resize(call.input.bytes());
  kernels::scale(call.input.dtype, call.input.data, call.multiplied.data(), call.input.count,
                 call.factor);
  call.input.data = call.multiplied.data();
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
      .bytes_sent = task.input.bytes(), .bytes_received = task.output.bytes(), .carried = true};
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

const Plan& CollectiveQueue::plan_for(const Task& task) {
  PlanShape shape;
  shape.collective = task.call.collective;
  shape.root = task.call.root;
  shape.count = task.call.count;
  shape.even = task.even;
  shape.in_place = task.in_place;
  shape.element_bytes = size_of(task.call.dtype);
  shape.coding = task.call.coding;
  const bool by_shape = task.counts.empty();
  const Plan* last = by_shape ? plans_.same_as_last(shape) : nullptr;
  if (last) return *last;
  told_ = false;
  const schedule::Problem problem = problem_of(group_, task);
  return by_shape ? plans_.plan(problem, shape) : plans_.plan(problem, shape.element_bytes);
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
