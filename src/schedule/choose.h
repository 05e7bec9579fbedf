// The choice of algorithm and chunk by a cost model, from facts that all ranks share, so that all
// choose alike.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

class CableMap;

/// What the model knows of a group. Equal on all ranks.
struct Facts {
  double latency_s = 15e-6;          ///< One message of no bytes through a link, end to end.
  double bytes_per_s = 2e9;          ///< One link, one direction.
  double reduce_bytes_per_s = 8e9;   ///< Arithmetic per rank.
  double coding_bytes_per_s = 25e9;  ///< Floats that a rank rounds to bf16, or widens, in cache.
  double shared_latency_s = 1.5e-6;  ///< The same of links through shared memory.
  double shared_bytes_per_s = 5e9;
  /// Of a latency, what the rank itself does for a message; the rest is waiting, which overlaps.
  double message_work_s = 1.875e-6;
  double shared_message_work_s = 0.1875e-6;
  double window_latency_s = 0.1e-6;      ///< From an arrival until a neighbour sees it.
  double cached_bytes_per_s = 36e9;      ///< What a rank copies or adds between caches.
  double memory_bytes_per_s = 17e9;      ///< What it reads and writes of memory, all cores at once.
  double shared_cache_bytes = 32 << 20;  ///< Of the caches that the cores of a node share.
  double ranks_per_core = 1;             ///< On the fullest node; at least 1.
  /// Where that is more than 1, for each rank of a core: the switch to another process when ranks
  /// wait for each other, and what a call takes that waits for nobody.
  double switch_s = 1.5e-6;
  double turn_s = 0.25e-6;
  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< Upper bound of a message.
  std::size_t small_bytes =
      65536;  ///< all_reduce below this goes direct (unless the group is large).
  std::optional<Algorithm> forced = {};  ///< Used wherever it can do the problem.
  std::vector<int> nodes = {};           ///< As Problem::nodes.
  std::size_t window_bytes = 0;          ///< What Problem::window is in bytes.
  /// Where cables do not join all ranks; else null.
  std::shared_ptr<const CableMap> cables = nullptr;
};

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  std::size_t chunk = 1;  ///< Elements.
  double predicted_s = 0;
};

/// Considers every algorithm that can do the problem. The problem's chunk, nodes and window are
/// ignored (the facts hold them); for all_to_all, unless it is even, only what all ranks
/// know (size) is used, and nothing of cables.
Choice choose(const Problem& problem, std::size_t element_bytes, const Facts& facts);

/// Whether a sum with a coding is predicted to take less by a tenth than the exact one.
bool is_faster_coded(const Problem& problem, std::size_t element_bytes, const Facts& facts);

/// The problem with the nodes and the window that the facts tell.
Problem placed(Problem problem, std::size_t element_bytes, const Facts& facts);

/// Predicted seconds.
double cost(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts);

}  // namespace mccl::schedule
