// First by luck: a path that grows, and is turned around where it cannot (after Pósa); that finds a
// cycle in nearly every graph with many edges. Then by proof: edges that every cycle must take, or
// cannot take, follow from those that are decided; where nothing follows, one edge is tried both
// ways. Cables are few per host, so that much follows from little.
#include "cluster/cycle.h"

#include <algorithm>
#include <optional>
#include <random>

namespace mccl::cluster {
namespace {

constexpr int kStarts = 40;

int first_of(const Vertices& set) { return static_cast<int>(set.first()); }

class Luck {
 public:
  explicit Luck(const Graph& graph) : graph_(graph), random_(graph.size()) {}

  std::vector<int> find() {
    for (int start = 0; start < kStarts; ++start)
      if (grow(start)) return path_;
    return {};
  }

 private:
  bool grow(int start) {
    const auto size = graph_.size();
    path_.assign(1, start % static_cast<int>(size));
    Vertices used;
    used.set(static_cast<std::size_t>(path_.front()));
    for (std::size_t turns = 0; turns < 8 * size;) {
      const Vertices next = neighbours(path_.back()) & ~used;
      if (next.any()) {
        path_.push_back(pick(next));
        used.set(static_cast<std::size_t>(path_.back()));
        continue;
      }
      if (path_.size() == size && neighbours(path_.back()).test(front())) return true;
      if (!turn()) return false;
      ++turns;
    }
    return false;
  }

  /// From the path's end to a vertex on it, and back along what came after.
  bool turn() {
    Vertices places = neighbours(path_.back());
    if (path_.size() > 1) places.reset(static_cast<std::size_t>(path_[path_.size() - 2]));
    if (places.none()) return false;
    const int place = pick(places);
    const auto at = std::ranges::find(path_, place);
    std::reverse(at + 1, path_.end());
    return true;
  }

  const Vertices& neighbours(int vertex) const { return graph_[static_cast<std::size_t>(vertex)]; }
  std::size_t front() const { return static_cast<std::size_t>(path_.front()); }

  int pick(const Vertices& set) {
    auto skip = random_() % set.count();
    std::size_t at = set.first();
    for (; skip > 0; --skip) at = set.next(at);
    return static_cast<int>(at);
  }

  const Graph& graph_;
  std::mt19937 random_;
  std::vector<int> path_;
};

/// Some edges are taken, some ruled out, the others open.
class Partial {
 public:
  explicit Partial(const Graph& graph)
      : possible_(graph), taken_(graph.size()), other_end_(graph.size()) {
    for (std::size_t v = 0; v < graph.size(); ++v) {
      other_end_[v] = static_cast<int>(v);
      changed_.set(v);
    }
  }

  /// Draws all conclusions; false when there can be no cycle.
  bool conclude() {
    while (changed_.any()) {
      const int vertex = first_of(changed_);
      changed_.reset(static_cast<std::size_t>(vertex));
      if (!conclude_at(vertex)) return false;
    }
    return is_joined();
  }

  bool complete() const { return edges_ == static_cast<int>(possible_.size()); }

  bool take(int a, int b) {
    if (possible(a, b) && taken(a, b)) return true;
    if (!possible(a, b) || ways(a) == 2 || ways(b) == 2) return false;
    const int end_a = other_end_[static_cast<std::size_t>(a)];
    const int end_b = other_end_[static_cast<std::size_t>(b)];
    const bool closes = end_a == b;
    if (closes && edges_ + 1 < static_cast<int>(possible_.size())) return false;
    set(taken_, a, b, true);
    ++edges_;
    other_end_[static_cast<std::size_t>(end_a)] = end_b;
    other_end_[static_cast<std::size_t>(end_b)] = end_a;
    const bool too_early = edges_ + 1 < static_cast<int>(possible_.size());
    if (!closes && too_early && possible(end_a, end_b) && !taken(end_a, end_b))
      rule_out(end_a, end_b);
    touch(a, b);
    return true;
  }

  void rule_out(int a, int b) {
    set(possible_, a, b, false);
    touch(a, b);
  }

  /// An open edge, where possible one that makes a piece of the cycle longer.
  std::optional<std::pair<int, int>> open_edge() const {
    int best = -1;
    std::size_t fewest = kMostVertices;
    for (int v = 0; v < size(); ++v) {
      if (ways(v) == 2) continue;
      const std::size_t choices = open(v).count() + (ways(v) == 1 ? 0 : kMostVertices / 2);
      if (choices < fewest) {
        fewest = choices;
        best = v;
      }
    }
    if (best < 0) return {};
    return std::pair{best, first_of(open(best))};
  }

  std::vector<int> order() const {
    std::vector<int> order = {0};
    Vertices used;
    used.set(0);
    for (;;) {
      const Vertices next = taken_[static_cast<std::size_t>(order.back())] & ~used;
      if (next.none()) return order;
      order.push_back(first_of(next));
      used.set(static_cast<std::size_t>(order.back()));
    }
  }

 private:
  int size() const { return static_cast<int>(possible_.size()); }
  bool possible(int a, int b) const {
    return possible_[static_cast<std::size_t>(a)].test(static_cast<std::size_t>(b));
  }
  bool taken(int a, int b) const {
    return taken_[static_cast<std::size_t>(a)].test(static_cast<std::size_t>(b));
  }
  std::size_t ways(int v) const { return taken_[static_cast<std::size_t>(v)].count(); }
  Vertices open(int v) const {
    return possible_[static_cast<std::size_t>(v)] & ~taken_[static_cast<std::size_t>(v)];
  }
  static void set(Graph& edges, int a, int b, bool value) {
    edges[static_cast<std::size_t>(a)].set(static_cast<std::size_t>(b), value);
    edges[static_cast<std::size_t>(b)].set(static_cast<std::size_t>(a), value);
  }
  void touch(int a, int b) {
    changed_.set(static_cast<std::size_t>(a));
    changed_.set(static_cast<std::size_t>(b));
  }

  /// Two edges of every vertex are the cycle's.
  bool conclude_at(int v) {
    const std::size_t count = possible_[static_cast<std::size_t>(v)].count();
    if (count < 2) return false;
    const Vertices rest = open(v);
    if (ways(v) == 2) {
      for (std::size_t u = rest.first(); u < kMostVertices; u = rest.next(u))
        rule_out(v, static_cast<int>(u));
    } else if (count == 2) {
      for (std::size_t u = rest.first(); u < kMostVertices; u = rest.next(u))
        if (!take(v, static_cast<int>(u))) return false;
    }
    return true;
  }

  /// Whether what is possible joins all, also without any one vertex.
  bool is_joined() const {
    for (int without = -1; without < size(); ++without)
      if (!is_joined_without(without)) return false;
    return true;
  }

  bool is_joined_without(int without) const {
    Vertices left;
    for (int v = 0; v < size(); ++v) left.set(static_cast<std::size_t>(v), v != without);
    Vertices edge;
    edge.set(left.first());
    left &= ~edge;
    while (edge.any()) {
      const std::size_t v = edge.first();
      edge.reset(v);
      const Vertices next = possible_[v] & left;
      left &= ~next;
      edge |= next;
    }
    return left.none();
  }

  Graph possible_;
  Graph taken_;
  std::vector<int> other_end_;  ///< Of the piece that ends at a vertex.
  Vertices changed_;
  int edges_ = 0;
};

class Proof {
 public:
  Proof(Patience& patience, std::size_t vertices) : patience_(patience), vertices_(vertices) {}

  Cycle search(Partial partial) {
    if (!partial.conclude()) return {};
    if (partial.complete()) return {partial.order(), true};
    const auto edge = partial.open_edge();
    if (!edge) return {};
    if (!patience_.allows(vertices_)) return {{}, false};
    Partial with = partial;
    if (with.take(edge->first, edge->second)) {
      Cycle found = search(std::move(with));
      if (!found.order.empty() || !found.proved) return found;
    }
    partial.rule_out(edge->first, edge->second);
    return search(std::move(partial));
  }

 private:
  Patience& patience_;
  const std::size_t vertices_;
};

/// Who goes on to whom, so that as many as possible do: each finds a neighbour, if need be by
/// sending another elsewhere.
class Successors {
 public:
  explicit Successors(const Graph& graph) : graph_(graph), from_(graph.size(), -1) {}

  int count() {
    int count = 0;
    for (std::size_t v = 0; v < graph_.size(); ++v) {
      seen_.clear();
      if (place(static_cast<int>(v))) ++count;
    }
    return count;
  }

 private:
  bool place(int v) {
    const Vertices next = graph_[static_cast<std::size_t>(v)];
    for (std::size_t u = next.first(); u < kMostVertices; u = next.next(u)) {
      if (seen_.test(u)) continue;
      seen_.set(u);
      if (from_[u] >= 0 && !place(from_[u])) continue;
      from_[u] = v;
      return true;
    }
    return false;
  }

  const Graph& graph_;
  std::vector<int> from_;
  Vertices seen_;
};

}  // namespace

int most_steps(const Graph& graph) { return Successors(graph).count(); }

Cycle find_cycle(const Graph& graph, Patience& patience) {
  if (most_steps(graph) < static_cast<int>(graph.size())) return {};
  if (!Partial(graph).conclude()) return {};
  std::vector<int> lucky = Luck(graph).find();
  if (!lucky.empty()) return {std::move(lucky), true};
  const Patience given = patience.share();
  Patience rest = given;
  Cycle cycle = Proof(rest, graph.size()).search(Partial(graph));
  patience.take(rest, given);
  return cycle;
}

}  // namespace mccl::cluster
