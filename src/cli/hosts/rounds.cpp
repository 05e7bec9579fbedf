#include "cli/hosts/rounds.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace mccl::cli::hosts {
namespace {

/// Returns the round of a round-robin tournament in which players `a` and `b` meet. Uses the circle
/// method: if the number of players is even, one player stays in place, and the others move around
/// a circle.
int tournament_round(int players, int a, int b) {
  const int circle = players - (players % 2 == 0 ? 1 : 0);
  if (a == circle) return 2 * b % circle;
  if (b == circle) return 2 * a % circle;
  return (a + b) % circle;
}

}  // namespace

std::vector<std::vector<std::size_t>> rounds_of(std::span<const std::pair<int, int>> pairs) {
  int players = 2;
  for (const auto& [a, b] : pairs) players = std::max({players, a + 1, b + 1});
  std::vector<std::size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), 0);
  // If all hosts are paired with all others, consecutive pairs of this order fill a round.
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    const auto& [a, b] = pairs[i];
    return std::tuple(tournament_round(players, a, b), a > b);
  });
  std::vector<std::vector<std::size_t>> rounds;
  std::vector<std::vector<bool>> busy;  // Indexed by round and host.
  for (const std::size_t i : order) {
    const auto a = static_cast<std::size_t>(pairs[i].first);
    const auto b = static_cast<std::size_t>(pairs[i].second);
    const auto is_free = [&](const std::vector<bool>& hosts) { return !hosts[a] && !hosts[b]; };
    const auto round = static_cast<std::size_t>(std::ranges::find_if(busy, is_free) - busy.begin());
    if (round == rounds.size()) {
      rounds.emplace_back();
      busy.emplace_back(static_cast<std::size_t>(players), false);
    }
    rounds[round].push_back(i);
    busy[round][a] = busy[round][b] = true;
  }
  return rounds;
}

}  // namespace mccl::cli::hosts
