#include "support/verifier/expressions.h"

#include <bit>

namespace mccl::schedule {

Expressions::Expressions(int ranks)
    : ranks_(ranks),
      words_((static_cast<std::size_t>(ranks) + 63) / 64),
      members_((static_cast<std::size_t>(ranks) + 1) * words_) {
  for (int rank = 0; rank < ranks; ++rank) {
    members_[leaf(rank) * words_ + rank / 64] |= std::uint64_t{1} << (rank % 64);
  }
}

bool Expressions::disjoint(Id a, Id b) const {
  for (std::size_t i = 0; i < words_; ++i) {
    if ((members_[a * words_ + i] & members_[b * words_ + i]) != 0) return false;
  }
  return true;
}

int Expressions::contributions(Id id) const {
  int count = 0;
  for (std::size_t i = 0; i < words_; ++i) count += std::popcount(members_[id * words_ + i]);
  return count;
}

Expressions::Id Expressions::node(Kind kind, Id a, Id b) {
  const std::uint64_t key =
      static_cast<std::uint64_t>(kind) << 62 | static_cast<std::uint64_t>(a) << 31 | b;
  const auto [found, is_new] = nodes_.try_emplace(key, static_cast<Id>(members_.size() / words_));
  if (is_new) {
    const Id other = kind == Kind::coded ? kNothing : b;
    for (std::size_t i = 0; i < words_; ++i) {
      members_.push_back(members_[a * words_ + i] | members_[other * words_ + i]);
    }
  }
  return found->second;
}

}  // namespace mccl::schedule
