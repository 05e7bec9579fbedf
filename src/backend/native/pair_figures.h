// Measures the links between pairs of ranks when a job starts. All ranks exchange what they found
// by calls of one group, `all`, because calls end soon if a rank dies. The store's answers do not.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "mccl/group.h"

namespace mccl::native {

/// Time limit for each measurement at the start of a job. It is generous, because a peer may be
/// slow.
inline constexpr std::chrono::seconds kPatience{30};

using Pair = std::pair<int, int>;

struct PairFigures {
  double latency_s = 0;
  double bytes_per_s = 0;
};

/// Sends `there` bytes of `data` from rank 0 of a pair to rank 1, which returns `back` bytes. Both
/// ranks must call it. Returns the seconds taken.
double there_and_back(Group& pair, std::span<std::byte> data, std::size_t there, std::size_t back);

/// Orders the pairs so that measuring them in turn cannot deadlock, and pairs without a common rank
/// can be measured at the same time. The result is the same on all ranks.
std::vector<Pair> in_rounds(std::set<Pair> pairs);

/// Measures the latency and rate between two ranks by messages, over links that are created for
/// this measurement. Both ranks must call it; only the result on the first rank is meaningful.
/// `what` names the measurement, is used once per pair, and must be the same on both ranks.
PairFigures measure_pair(const std::shared_ptr<engine::Engine>& engine, const Pair& pair,
                         std::string_view what);

/// Returns the texts that the ranks of the group pass, in rank order. All of them must call it.
std::vector<std::string> all_gather_texts(Group& all, const std::string& text);

/// Measures the latency and rate of every pair of ranks that cables join, by messages along these
/// cables. All ranks must call it, and all get the same measured values. No-op if every rank can
/// connect to every other rank directly.
void measure_cables(const std::shared_ptr<engine::Engine>& engine, Group& all);

/// Some pairs of ranks have several routes that the operating system considers equivalent. Measures
/// each of these routes, and makes later links use the best one. All ranks must call it, because
/// they exchange their numbers of routes. Ranks without such a pair measure nothing. Logs the
/// measured values at INFO.
void try_equal_ways(const std::shared_ptr<engine::Engine>& engine, Group& all);

/// If MCCL_CROSS_MEMORY is "on" and has no effect, the second rank of the node logs the reason.
void warn_of_two_copies(engine::Engine& engine);

/// Decides whether large messages between the ranks of a node need one copy or two: see
/// MCCL_CROSS_MEMORY. Measures both if the setting is auto. All ranks must call it.
void choose_copies(const std::shared_ptr<engine::Engine>& engine, Group& all);

/// Returns the ranks that share memory with this rank, and this rank, in order; empty if no ranks
/// share memory.
std::vector<int> members_of_my_node(const engine::Engine& engine);

}  // namespace mccl::native
