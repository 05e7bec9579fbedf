// Matches events between ranks: each send with its receive, and each await with its arrivals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// The matched events of all ranks. A step's number is its index in the sequence of all steps:
/// those of rank 0, then those of rank 1, and so on.
class Exchange {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// Throws a Defect if a send does not match its receive, or if an await has no arrival. Also
  /// throws if ranks of a node differ in their number of arrivals or their use of the window.
  Exchange(std::span<const Problem> problems, std::span<const Schedule> schedules);

  std::uint32_t steps() const { return begin_.back(); }
  std::uint32_t number(int rank, std::size_t step) const {
    return begin_[rank] + static_cast<std::uint32_t>(step);
  }
  int rank_of(std::uint32_t number) const { return rank_[number]; }
  std::size_t index_of(std::uint32_t number) const { return number - begin_[rank_[number]]; }
  const Step& step(std::uint32_t number) const {
    return schedules_[rank_[number]].steps[index_of(number)];
  }

  /// Returns the receive of a send, or the send of a receive.
  std::uint32_t partner(std::uint32_t number) const { return partner_[number]; }

  template <typename Visit>
  void for_each_successor(std::uint32_t number, Visit visit) const {
    const int rank = rank_[number];
    const Schedule& schedule = schedules_[rank];
    const std::size_t i = index_of(number);
    for (auto e = schedule.successor_begin[i]; e < schedule.successor_begin[i + 1]; ++e) {
      visit(begin_[rank] + schedule.successors[e]);
    }
    if (schedule.steps[i].kind != StepKind::arrive) return;
    const auto place = arrival_place_[number];
    for (auto e = awaits_begin_[place]; e < awaits_begin_[place + 1]; ++e) visit(awaits_[e]);
  }

  /// Returns the number of a rank's arrival step. `mark` counts the rank's arrivals from 1.
  std::uint32_t arrival(int rank, std::uint32_t mark) const { return arrivals_[rank][mark - 1]; }

  /// Returns the numbers of all events in an order that respects waits and the order of messages.
  /// An event is a step, or a send together with its receive, under the send's number. Throws a
  /// Defect if there is no such order.
  std::vector<std::uint32_t> order() const;

 private:
  /// Message steps by (sender, receiver), in program order.
  struct Queues {
    std::vector<std::uint32_t> begin;
    std::vector<std::uint32_t> steps;  // numbers of the steps
  };

  Queues collect(bool sends) const;
  void collect_arrivals();
  void compare_nodes() const;
  /// Calls visit(number of the await step, number of the arrival step) for every arrival that an
  /// await step waits for.
  template <typename Visit>
  void for_each_await(Visit visit) const;
  void pair(int from, int to, std::span<const std::uint32_t> sends,
            std::span<const std::uint32_t> receives);

  std::span<const Problem> problems_;
  std::span<const Schedule> schedules_;
  std::vector<std::uint32_t> begin_;  // number of each rank's first step, then the total
  std::vector<int> rank_;
  std::vector<std::uint32_t> partner_;
  std::vector<std::uint32_t> next_send_;  // the next send of the same rank to the same peer
  std::vector<bool> follows_send_;  // true if a send of the same rank to the same peer precedes it
  std::vector<std::vector<std::uint32_t>> arrivals_;  // one list per rank, in order
  std::vector<std::uint32_t> arrival_place_;          // index of an arrival into awaits_begin_
  std::vector<std::uint32_t> awaits_begin_;
  std::vector<std::uint32_t> awaits_;   // numbers of awaits, grouped by arrival
  std::vector<std::uint32_t> awaited_;  // number of arrivals that each await waits for
};

}  // namespace mccl::schedule
