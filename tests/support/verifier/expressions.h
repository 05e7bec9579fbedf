// Sums as expressions over the ranks' contributions. Equal expressions have equal numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace mccl::schedule {

class Expressions {
 public:
  using Id = std::uint32_t;
  static constexpr Id kNothing = 0;  ///< Memory that no step has written.

  explicit Expressions(int ranks);

  /// The contribution of one rank.
  Id leaf(int rank) const { return static_cast<Id>(rank) + 1; }
  bool is_leaf(Id id) const { return id >= 1 && id <= static_cast<Id>(ranks_); }

  /// True if no rank contributes to both expressions.
  bool disjoint(Id a, Id b) const;
  /// The rounded sum a + b, which differs from b + a.
  Id sum(Id a, Id b) { return node(Kind::sum, a, b); }
  /// Starts a sum of several operands that is rounded once. add_to_fold() adds the other operands.
  Id begin_fold(Id first) { return node(Kind::begin_fold, first, kNothing); }
  Id add_to_fold(Id fold, Id operand) { return node(Kind::add_to_fold, fold, operand); }

  /// The value `what` after step number `step` has rounded it to blocks. Another step may round the
  /// value differently.
  Id coded(Id what, std::uint32_t step) { return node(Kind::coded, what, step); }

  /// Returns how many ranks contribute.
  int contributions(Id id) const;

 private:
  enum class Kind : std::uint64_t { sum, begin_fold, add_to_fold, coded };

  Id node(Kind kind, Id a, Id b);

  const int ranks_;
  const std::size_t words_;             // words per set of ranks
  std::vector<std::uint64_t> members_;  // a set of ranks for each expression
  std::unordered_map<std::uint64_t, Id> nodes_;
};

}  // namespace mccl::schedule
