// Schedules prepared for the executor, cached across calls.
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

/// The messages between this rank and one peer, as indices of steps, in order.
struct PeerPlan {
  GroupRank peer;
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> receives;
};

struct Plan {
  schedule::Algorithm algorithm = schedule::Algorithm::direct;
  schedule::Schedule schedule;
  std::vector<PeerPlan> peers;
  std::vector<std::uint32_t> first_local;  ///< Local steps that wait for no other step.
  std::vector<std::uint32_t> window;       ///< Steps through the node's window, in order.
};

/// Properties that determine a call's problem if it has no counts. Compared with those of the
/// previous call.
struct PlanShape {
  Collective collective = Collective::barrier;
  int root = 0;
  std::size_t count = 0;
  bool even = false;  ///< See Task.
  bool in_place = false;
  std::size_t element_bytes = 0;  ///< 0 only in an empty shape.
  Coding coding = {};
  friend bool operator==(const PlanShape&, const PlanShape&) = default;
};

/// Caches the plans of recent problems. Used under the engine's progress lock.
class PlanCache {
 public:
  explicit PlanCache(schedule::Facts facts) : facts_(std::move(facts)) {}

  /// Returns the plan of a problem. Valid until the next call of plan().
  const Plan& plan(const schedule::Problem& problem, std::size_t element_bytes);
  /// Does the same, and records `shape`, so that same_as_last() can find the plan again.
  const Plan& plan(const schedule::Problem& problem, const PlanShape& shape);

  /// The plan that was requested last, if that request had this shape; else null.
  const Plan* same_as_last(const PlanShape& shape) const {
    return shape == last_shape_ ? last_ : nullptr;
  }

  const schedule::Facts& facts() const { return facts_; }
  /// Sets new facts and discards all plans, because they were made from the old facts.
  void learn(schedule::Facts facts);
  /// Discards all plans. None may be in use.
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
  std::size_t bytes_ = 0;  // memory of all plans
  PlanShape last_shape_;
  const Plan* last_ = nullptr;  // points into plans_
};

}  // namespace mccl::engine
