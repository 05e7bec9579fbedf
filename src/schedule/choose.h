// Chooses algorithm and chunk with a cost model. The inputs of the model are equal on all ranks, so
// all ranks make the same choice.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

class CableMap;

/// Properties of a group from which the cost model predicts times. Equal on all ranks.
struct Facts {
  double latency_s = 15e-6;  ///< Time of an empty message through a link, end to end.
  double bytes_per_s = 2e9;  ///< Rate of one link, in one direction.
  /// Rates at which a rank adds arrays of floats in its cache, and converts floats to or from bf16;
  /// in bytes of floats per second. The defaults are low and equal, so that rounded sums do not
  /// look cheaper than they are.
  double reduce_bytes_per_s = 8e9;
  double coding_bytes_per_s = 8e9;
  /// Latency and rate of a link in shared memory, one way.
  double shared_latency_s = 1.5e-6;
  double shared_bytes_per_s = 5e9;
  /// Part of latency_s and of shared_latency_s during which the rank handles the message. During
  /// the rest, the rank is free for other work.
  double message_work_s = 1.875e-6;
  double shared_message_work_s = 0.1875e-6;
  double window_latency_s = 0.1e-6;  ///< Time from an arrival (schedule.h) until others see it.
  double cached_bytes_per_s = 36e9;  ///< Rate at which a rank copies or adds data between caches.
  /// Rate at which a rank reads and writes memory while all other ranks do the same.
  double memory_bytes_per_s = 17e9;
  double shared_cache_bytes = 32 << 20;  ///< Size of the caches that the cores of a node share.
  double ranks_per_core = 1;  ///< Highest number of ranks per core of a node, at least 1.
  /// switch_s and turn_s apply only if ranks_per_core exceeds 1, and are multiplied by it. switch_s
  /// is the time of a switch to another process, when ranks wait for each other. turn_s is the time
  /// that a shared core adds to a call that waits for no other rank.
  double switch_s = 1.5e-6;
  double turn_s = 0.25e-6;
  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< Maximum message size, in bytes.
  /// Size in bytes below which an all_reduce uses `direct`. Applies to groups of at most 8 ranks,
  /// if `nodes` is empty and `cables` is null.
  std::size_t small_bytes = 65536;
  /// Algorithm to use for every problem that it can perform; empty to compare all algorithms.
  std::optional<Algorithm> forced = {};
  std::vector<int> nodes = {};   ///< Node of each rank; see Problem::nodes.
  std::size_t window_bytes = 0;  ///< Capacity of a rank's window, in bytes.
  /// The map of the cables if they do not join every pair of ranks; otherwise null.
  std::shared_ptr<const CableMap> cables = nullptr;
};

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  std::size_t chunk = 1;  ///< Maximum message size, in elements.
  double predicted_s = 0;
};

struct Estimate {
  double seconds = 0;
  /// Approximate number of steps of the rank that has the most steps. If the algorithm also uses
  /// links, steps that use the window are not counted.
  double steps = 0;
  /// True if some ranks must forward messages, because no cable joins the sender and the receiver.
  bool needs_relays = false;
};

/// Estimates one call in a series of calls without pauses. Apart from in_place, uses only values
/// that are equal on all ranks: ignores the rank and, for an all_to_all that is not even, the
/// counts. Assumes that parts have equal sizes and, for an all_to_all that is not even, that every
/// pair exchanges one chunk.
class Estimator {
 public:
  /// Requires can(algorithm, problem). The facts must outlive this object.
  Estimator(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts);

  /// Estimates the call with this chunk in place of the problem's chunk. Builds small schedules,
  /// which are reused for other chunks if possible.
  Estimate at(std::size_t chunk);

 private:
  const std::vector<Schedule>& built(const Problem& problem, std::span<const int> ranks);

  const Algorithm algorithm_;
  Problem asked_;
  const std::size_t element_bytes_;
  const Facts& facts_;
  std::vector<Schedule> schedules_;
  Problem built_for_;
};

/// Returns the algorithm and chunk with the lowest predicted time, of the candidates for the
/// problem (see candidates_for() in choose.cpp). Takes nodes, window, ring and tree from the facts,
/// not from the problem. Only the size of the group and `facts.forced` decide for an all_to_all
/// that is not `even`, because the ranks do not know each other's counts.
Choice choose(const Problem& problem, std::size_t element_bytes, const Facts& facts);

/// True if the coded sum is predicted to take at least a tenth less time than the exact sum.
bool is_faster_coded(const Problem& problem, std::size_t element_bytes, const Facts& facts);

/// Returns the problem with nodes, window, ring and tree filled in from the facts.
Problem placed(Problem problem, std::size_t element_bytes, const Facts& facts);

/// Returns the predicted time of a call, in seconds.
double cost(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts);

struct FactInfo {
  std::string_view name;
  std::string_view unit;  ///< "s", "B/s", "B", or empty for a ratio.
  std::string_view meaning;
  std::variant<double Facts::*, std::size_t Facts::*> field;
};

/// All facts, in display order.
std::span<const FactInfo> fact_table();

/// Returns the fact with this name; null if there is none.
const FactInfo* find_fact(std::string_view name);

double value_of(const Facts& facts, const FactInfo& info);
/// True if a fact may have this value. The value must be finite and not negative. It must be above
/// 0 for facts of type double, at least 1 for chunk_bytes and ranks_per_core, and at most 1e15 for
/// facts of type size_t.
bool is_possible(const FactInfo& info, double value);
/// Sets a fact. Requires is_possible(info, value). Facts of type size_t are rounded down.
void assign(Facts& facts, const FactInfo& info, double value);

}  // namespace mccl::schedule
