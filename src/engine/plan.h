// Schedules made ready for the executor, kept from call to call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedule/choose.h"
#include "schedule/schedule.h"

namespace mccl::engine {

/// The messages between this rank and one peer, as steps in order.
struct PeerPlan {
  int peer = -1;
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> receives;
};

struct Plan {
  schedule::Algorithm algorithm = schedule::Algorithm::direct;
  schedule::Schedule schedule;
  std::vector<PeerPlan> peers;
  std::vector<std::uint32_t> first_local;  ///< Copies and folds that wait for nothing.
  std::vector<std::uint32_t> window;       ///< Steps through the node's window, in order.
};

/// Remembers the plans of recent problems. Used under the engine's progress lock.
class PlanCache {
 public:
  explicit PlanCache(schedule::Facts facts) : facts_(std::move(facts)) {}

  /// Lives until another plan is asked for.
  const Plan& plan(const schedule::Problem& problem, std::size_t element_bytes);

  /// The plan of the last problem, if that is asked for again. Null otherwise, and for problems
  /// with counts.
  const Plan* same_as_last(Collective collective, int root, std::size_t count, bool in_place,
                           std::size_t element_bytes) const;

  const schedule::Facts& facts() const { return facts_; }
  /// Forgets the plans that were made from other facts.
  void learn(schedule::Facts facts);

 private:
  struct Key {
    schedule::Problem problem;
    std::size_t element_bytes;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };

  schedule::Facts facts_;
  using Plans = std::unordered_map<Key, Plan, KeyHash>;
  Plans plans_;
  const Plans::value_type* last_ = nullptr;  // in plans_
};

}  // namespace mccl::engine
