// The table of algorithms. Each algorithm is one file, which defines its entry; registry.cpp
// collects the entries.
#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// The data that an algorithm moves through the windows of nodes (schedule.h): none, only the data
/// that stays inside a node, or all.
enum class WindowUse { none, inside_nodes, all };

/// One algorithm. The functions are called for groups of at least two ranks only.
struct AlgorithmEntry {
  std::string_view name;
  /// True if the algorithm can perform the problem. If the sums travel in blocks of a codec, `can`
  /// is called only if `sums_blocks` is set.
  bool (*can)(const Problem& problem);
  Schedule (*build)(const Problem& problem);
  /// True if the algorithm can perform an all_reduce or reduce_scatter whose sums travel in blocks
  /// of a codec.
  bool sums_blocks = false;
  /// True if all ranks do the same: each rank receives messages of the same sizes as those that it
  /// sends, but not necessarily from the ranks to which it sends. The cost model then simulates a
  /// single rank. The cost model calls this only for problems without a root. Null means that no
  /// problem has this property.
  bool (*is_symmetric)(const Problem& problem) = nullptr;
  /// True if an all_reduce handles the ranks' parts of the buffer one after another.
  bool in_parts = false;
  WindowUse window = WindowUse::none;
};

extern const AlgorithmEntry kDirect;
extern const AlgorithmEntry kRing;
extern const AlgorithmEntry kRingBoth;
extern const AlgorithmEntry kRecursiveDoubling;
extern const AlgorithmEntry kBinomialTree;
extern const AlgorithmEntry kChain;
extern const AlgorithmEntry kPairwise;
extern const AlgorithmEntry kDissemination;
extern const AlgorithmEntry kOneShot;
extern const AlgorithmEntry kTwoShot;
extern const AlgorithmEntry kHierarchical;
extern const AlgorithmEntry kCableTree;

const AlgorithmEntry& entry_of(Algorithm algorithm);

/// A collective, and the member function of `Class` that writes its schedule.
template <typename Class>
struct Writes {
  using Writer = Class;
  Collective collective;
  void (Class::*write)();
};

/// can_write() and write() implement AlgorithmEntry::can and AlgorithmEntry::build for a table of
/// Writes. The class of the table's functions has a constructor that takes the problem, and a
/// function finish() that returns the schedule.
template <const auto& table>
bool can_write(const Problem& problem) {
  for (const auto& each : table) {
    if (each.collective == problem.collective) return true;
  }
  return false;
}

template <const auto& table>
Schedule write(const Problem& problem) {
  typename std::remove_cvref_t<decltype(table[0])>::Writer writer(problem);
  for (const auto& each : table) {
    if (each.collective == problem.collective) (writer.*each.write)();
  }
  return writer.finish();
}

/// Returns true. Serves as AlgorithmEntry::can or AlgorithmEntry::is_symmetric if the answer is
/// true for every problem.
inline bool always(const Problem&) { return true; }

/// Builders that other algorithms call. Both sum in blocks of a codec: build_coded() among all
/// ranks (coded.cpp), build_hierarchical_scatter() over several nodes.
Schedule build_coded(const Problem& problem);
Schedule build_hierarchical_scatter(const Problem& problem);

/// The neighbours of one rank in a tree of ranks.
struct Tree {
  int parent = -1;  ///< Parent of this rank; -1 for the root.
  /// Children of this rank, in the order in which their data is ready to be reduced.
  std::vector<int> children;
};

/// Builds all_reduce, broadcast or reduce. `tree` is this rank's view of the tree.
Schedule build_on_tree(const Problem& problem, const Tree& tree);

}  // namespace mccl::schedule
