// Schedules prepared for the executor, cached across calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rank.h"
#include "engine/calls/request.h"
#include "schedule/choose.h"
#include "schedule/schedule.h"

namespace mccl::engine {

/// The messages between this rank and one peer, as indices into Schedule::steps, in order.
struct PeerPlan {
  GroupRank peer;
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> receives;
};

struct Plan {
  schedule::Algorithm algorithm = schedule::Algorithm::direct;
  schedule::Schedule schedule;
  std::vector<PeerPlan> peers;
  /// Local steps (copies, folds) that wait for no other step.
  std::vector<std::uint32_t> first_local;
  std::vector<std::uint32_t> window;  ///< Steps that use the node's shared window, in order.
};

/// Caches the plans of recent problems (collective, sizes and root). Used under the engine's
/// progress lock.
class PlanCache {
 public:
  explicit PlanCache(schedule::Facts facts) : facts_(std::move(facts)) {}

  /// Returns the plan of a problem. The reference is valid until the next call of plan().
  const Plan& plan(const schedule::Problem& problem, std::size_t element_bytes);
  /// Records that `plan` carries out `request`, for the next call of same_as_last().
  void used(const Plan& plan, const Request& request) {
    last_ = &plan;
    last_call_ = request.call;
    last_is_even_ = request.even;
    last_is_in_place_ = request.in_place;
  }
  /// The plan of the last request; null if there was no request or the plan has been discarded.
  const Plan* last() const { return last_; }
  /// Returns the plan of the last request if `request` needs the same plan; else null. Always null
  /// for a request with counts, because a Call contains only the hash of its counts.
  const Plan* same_as_last(const Request& request) const {
    const bool same = last_ && request.counts.empty() && request.call.matches(last_call_) &&
                      request.even == last_is_even_ && request.in_place == last_is_in_place_;
    return same ? last_ : nullptr;
  }

  const schedule::Facts& facts() const { return facts_; }
  /// Sets new facts. Discards all plans, because they were made from the old facts.
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
  std::size_t bytes_ = 0;       // memory of all plans, in bytes
  const Plan* last_ = nullptr;  // points into plans_
  Call last_call_;
  bool last_is_even_ = false;
  bool last_is_in_place_ = false;
};

}  // namespace mccl::engine
