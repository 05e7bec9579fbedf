// Two types of ranks, which must not be confused: a process's rank in the whole job, and its rank
// in one group.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <vector>

namespace mccl {

/// A rank in the job or in a group, depending on the tag type `Of`; negative for no rank.
template <typename Of>
class Rank {
 public:
  constexpr Rank() = default;
  constexpr explicit Rank(int number) : number_(number) {}

  constexpr int number() const { return number_; }
  constexpr bool valid() const { return number_ >= 0; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(number_); }
  constexpr Rank& operator++() {
    ++number_;
    return *this;
  }
  friend constexpr bool operator==(Rank a, Rank b) { return a.number_ == b.number_; }
  friend constexpr bool operator<(Rank a, Rank b) { return a.number_ < b.number_; }
  friend constexpr bool operator>(Rank a, Rank b) { return b < a; }

 private:
  int number_ = -1;
};

/// Rank in the job.
using WorldRank = Rank<struct World>;
/// Rank in a group.
using GroupRank = Rank<struct Members>;

/// An array with one T for each rank, indexed by rank.
template <typename R, typename T>
class ByRank {
 public:
  ByRank() = default;
  explicit ByRank(std::size_t ranks) : items_(ranks) {}
  ByRank(std::size_t ranks, const T& each) : items_(ranks, each) {}
  explicit ByRank(std::vector<T> items) : items_(std::move(items)) {}

  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  R end_rank() const { return R(static_cast<int>(items_.size())); }
  decltype(auto) operator[](R rank) { return items_[rank.index()]; }
  decltype(auto) operator[](R rank) const { return items_[rank.index()]; }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<T> items_;
};

}  // namespace mccl

template <typename Of>
struct fmt::formatter<mccl::Rank<Of>> : fmt::formatter<int> {
  template <typename Context>
  auto format(mccl::Rank<Of> rank, Context& context) const {
    return fmt::formatter<int>::format(rank.number(), context);
  }
};
