// Schedules made ready for the executor, kept from call to call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "mccl/types.h"
#include "schedule/choose.h"
#include "schedule/schedule.h"

namespace mccl::engine {

/// The messages between this rank and one peer, as steps in order.
struct PeerPlan {
  GroupRank peer;
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> receives;
};

struct Plan {
  schedule::Algorithm algorithm = schedule::Algorithm::direct;
  schedule::Schedule schedule;
  std::vector<PeerPlan> peers;
  std::vector<std::uint32_t> first_local;  ///< Steps that compute, and wait for nothing.
  std::vector<std::uint32_t> window;       ///< Steps through the node's window, in order.
};

/// What tells a call's problem from that of the call before, where there are no counts.
struct PlanShape {
  Collective collective = Collective::barrier;
  int root = 0;
  std::size_t count = 0;
  bool even = false;  ///< As Task.
  bool in_place = false;
  std::size_t element_bytes = 0;  ///< 0: none.
  Coding coding = {};
  friend bool operator==(const PlanShape&, const PlanShape&) = default;
};

/// Remembers the plans of recent problems. Used under the engine's progress lock.
class PlanCache {
 public:
  explicit PlanCache(schedule::Facts facts) : facts_(std::move(facts)) {}

  /// Lives until another plan is asked for.
  const Plan& plan(const schedule::Problem& problem, std::size_t element_bytes);
  /// The same, where same_as_last may find it by its shape.
  const Plan& plan(const schedule::Problem& problem, const PlanShape& shape);

  /// The plan that was asked for last, if that was by the same shape; else null.
  const Plan* same_as_last(const PlanShape& shape) const {
    return shape == last_shape_ ? last_ : nullptr;
  }

  const schedule::Facts& facts() const { return facts_; }
  /// Forgets the plans that were made from other facts.
  void learn(schedule::Facts facts);
  /// Forgets all plans. None may be in use.
  void clear();
  bool empty() const { return plans_.empty(); }

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
  std::unordered_map<Key, Plan, KeyHash> plans_;
  std::size_t bytes_ = 0;  // that they take
  PlanShape last_shape_;
  const Plan* last_ = nullptr;  // in plans_
};

}  // namespace mccl::engine
