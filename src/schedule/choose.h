// Chooses algorithm and chunk with a cost model. Its inputs are facts that all ranks share, so all
// ranks choose the same.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

class CableMap;

/// The model's knowledge of a group. Equal on all ranks.
struct Facts {
  double latency_s = 15e-6;  ///< Time of an empty message through a link, end to end.
  double bytes_per_s = 2e9;  ///< Rate of one link, in one direction.
  /// Rates at which a rank adds floats to others in its cache, and converts them to or from bf16,
  /// in bytes of floats. Unless they are measured, both are cautious and alike, so that rounding
  /// sums does not look cheaper than it is.
  double reduce_bytes_per_s = 8e9;
  double coding_bytes_per_s = 8e9;
  /// Latency and rate of a link in shared memory, one way.
  double shared_latency_s = 1.5e-6;
  double shared_bytes_per_s = 5e9;
  /// Part of the latency of a link, or of a link in shared memory, during which the rank itself
  /// works. The rest is waiting, which overlaps with other work.
  double message_work_s = 1.875e-6;
  double shared_message_work_s = 0.1875e-6;
  double window_latency_s = 0.1e-6;  ///< Time from an arrival until a neighbour sees it.
  double cached_bytes_per_s = 36e9;  ///< Rate at which a rank copies or adds between caches.
  /// Rate at which a rank reads and writes memory while all other ranks do the same.
  double memory_bytes_per_s = 17e9;
  double shared_cache_bytes = 32 << 20;  ///< Size of the caches that the cores of a node share.
  double ranks_per_core = 1;             ///< Ranks per core on the fullest node; at least 1.
  /// Used if ranks_per_core exceeds 1; each is multiplied by ranks_per_core. switch_s: time of a
  /// switch to another process, when ranks wait for each other. turn_s: time that sharing the core
  /// adds to a call that waits for no other rank.
  double switch_s = 1.5e-6;
  double turn_s = 0.25e-6;
  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< Maximum message size, in bytes.
  /// Size in bytes below which an all_reduce uses `direct`, except in a large group.
  std::size_t small_bytes = 65536;
  /// Algorithm to use for every problem that it can perform.
  std::optional<Algorithm> forced = {};
  std::vector<int> nodes = {};   ///< Node of each rank; see Problem::nodes.
  std::size_t window_bytes = 0;  ///< Capacity of a rank's window, in bytes.
  /// Set if cables do not join every pair of ranks; otherwise null.
  std::shared_ptr<const CableMap> cables = nullptr;
};

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  std::size_t chunk = 1;  ///< Maximum message size, in elements.
  double predicted_s = 0;
};

/// Considers every algorithm that can perform the problem. Ignores the problem's chunk, nodes and
/// window; the facts hold nodes and window. An all_to_all that is not `even` is decided by its size
/// alone, which all ranks know, and without the cables.
Choice choose(const Problem& problem, std::size_t element_bytes, const Facts& facts);

/// True if the coded sum is predicted to take at least a tenth less time than the exact one.
bool is_faster_coded(const Problem& problem, std::size_t element_bytes, const Facts& facts);

/// Returns the problem with nodes, window, ring and tree filled in from the facts.
Problem placed(Problem problem, std::size_t element_bytes, const Facts& facts);

/// Returns the predicted time of a call, in seconds.
double cost(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts);

}  // namespace mccl::schedule
