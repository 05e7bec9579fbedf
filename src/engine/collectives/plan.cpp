#include "engine/collectives/plan.h"

#include <algorithm>
#include <utility>

namespace mccl::engine {
namespace {

/// Maximum number of cached plans. A training program repeats calls of a few dozen sizes. If a
/// program keeps using new sizes, the cache is cleared whenever it is full.
constexpr std::size_t kMostPlans = 256;

/// Maximum memory, in bytes, for the plans of a group. A plan that alone exceeds this limit is
/// cached as the only plan.
constexpr std::size_t kMostBytes = std::size_t{8} << 20;

template <typename T>
std::size_t bytes_of(const std::vector<T>& items) {
  return items.capacity() * sizeof(T);
}

std::size_t weight_of(const Plan& plan) {
  const schedule::Schedule& schedule = plan.schedule;
  std::size_t bytes = sizeof(Plan) + bytes_of(schedule.steps) + bytes_of(schedule.waits) +
                      bytes_of(schedule.successor_begin) + bytes_of(schedule.successors) +
                      bytes_of(plan.peers) + bytes_of(plan.first_local) + bytes_of(plan.window);
  for (const PeerPlan& peer : plan.peers) bytes += bytes_of(peer.sends) + bytes_of(peer.receives);
  return bytes;
}

PeerPlan& peer_plan(std::vector<PeerPlan>& peers, GroupRank peer) {
  const auto found = std::find_if(peers.begin(), peers.end(),
                                  [peer](const PeerPlan& plan) { return plan.peer == peer; });
  if (found != peers.end()) return *found;
  peers.push_back({peer, {}, {}});
  return peers.back();
}

/// Drops the dependencies between the steps of a schedule whose steps run in order, because the
/// executor does not read them.
void forget_edges(schedule::Schedule& schedule) {
  for (auto* edges : {&schedule.waits, &schedule.successor_begin, &schedule.successors}) {
    std::vector<std::uint32_t>().swap(*edges);
  }
}

Plan make_plan(schedule::Problem problem, std::size_t element_bytes, const schedule::Facts& facts) {
  const schedule::Choice choice = schedule::choose(problem, element_bytes, facts);
  problem = schedule::placed(std::move(problem), element_bytes, facts);
  problem.chunk = choice.chunk;
  Plan plan;
  plan.algorithm = choice.algorithm;
  plan.schedule = schedule::build(choice.algorithm, problem);
  for (std::uint32_t i = 0; i < plan.schedule.steps.size(); ++i) {
    const schedule::Step& step = plan.schedule.steps[i];
    if (step.kind == schedule::StepKind::send) {
      peer_plan(plan.peers, GroupRank(step.peer)).sends.push_back(i);
    } else if (is_message(step.kind)) {
      peer_plan(plan.peers, GroupRank(step.peer)).receives.push_back(i);
    } else if (is_window(step.kind)) {
      plan.window.push_back(i);
    } else if (plan.schedule.waits[i] == 0) {
      plan.first_local.push_back(i);
    }
  }
  if (plan.schedule.in_order) forget_edges(plan.schedule);
  return plan;
}

}  // namespace

const Plan& PlanCache::plan(const schedule::Problem& problem, std::size_t element_bytes) {
  Key key{problem, element_bytes};
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    Plan made = make_plan(problem, element_bytes, facts_);
    const std::size_t weight = weight_of(made);
    if (plans_.size() >= kMostPlans || bytes_ + weight > kMostBytes) clear();
    bytes_ += weight;
    found = plans_.emplace(std::move(key), std::move(made)).first;
  }
  return found->second;
}

void PlanCache::learn(schedule::Facts facts) {
  facts_ = std::move(facts);
  clear();
}

void PlanCache::clear() {
  last_ = nullptr;
  plans_.clear();
  bytes_ = 0;
}

std::size_t PlanCache::KeyHash::operator()(const Key& key) const {
  std::size_t hash = key.element_bytes;
  const auto mix = [&hash](std::size_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  };
  const schedule::Problem& problem = key.problem;
  mix(static_cast<std::size_t>(problem.collective));
  mix(static_cast<std::size_t>(problem.root));
  mix(problem.count);
  mix(static_cast<std::size_t>(problem.coding.codec) * 65536 + problem.coding.kept);
  mix((problem.in_place ? 1 : 2) + (problem.even ? 4 : 0));
  for (const std::size_t count : problem.counts) mix(count);
  for (const std::size_t count : problem.recv_counts) mix(count);
  return hash;
}

}  // namespace mccl::engine
