// Runs the steps of all ranks on symbolic values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/layout.h"
#include "schedule/schedule.h"
#include "support/verifier/exchange.h"
#include "support/verifier/expressions.h"
#include "support/verifier/run_map.h"
#include "support/verifier/value.h"
#include "support/verifier/window_proof.h"

namespace mccl::schedule {

/// Calls visit(count, value of a, value of b) for each range in which both have a single run.
template <typename Visit>
void zip(const Runs& a, const Runs& b, Visit visit) {
  std::size_t i = 0, j = 0, in_a = 0, in_b = 0;
  while (i < a.size() && j < b.size()) {
    const std::size_t count = std::min(a[i].count - in_a, b[j].count - in_b);
    visit(count, a[i].value.advanced(in_a), b[j].value.advanced(in_b));
    in_a += count;
    in_b += count;
    if (in_a == a[i].count) ++i, in_a = 0;
    if (in_b == b[j].count) ++j, in_b = 0;
  }
}

class Simulation {
 public:
  Simulation(std::span<const Problem> problems, std::span<const Schedule> schedules,
             const Exchange& exchange, Reading reading);

  /// Runs the events in the given order. Throws a Defect at a wrong step.
  void run(std::span<const std::uint32_t> order);

  /// Replaces `runs` with `count` elements of a rank's output, starting at `offset`.
  void read_output(int rank, std::size_t offset, std::size_t count, Runs& runs) const;
  const Expressions& expressions() const { return expressions_; }

 private:
  [[noreturn]] void fail_at(std::uint32_t number, const std::string& what) const;
  void prepare_memory(std::size_t rank);
  void run_event(std::uint32_t event);
  void deliver(std::uint32_t receive);
  void copy(std::uint32_t number);
  void encode(std::uint32_t number);
  void fold_coded(std::uint32_t number);
  void fold(std::uint32_t number);
  void begin_fold();
  void require_whole_node(std::uint32_t number, const Value& value) const;
  void require_elements(std::uint32_t number, const Runs& runs) const;
  void add_operand(std::uint32_t number);
  void end_fold(std::uint32_t number);
  void publish(std::uint32_t number);
  void read_window(std::uint32_t number);
  void read_fold(std::uint32_t number);
  void require_addable(std::uint32_t number, const Value& a, const Value& b) const;
  Value completed(std::uint32_t number, Value value) const;
  void read(std::uint32_t number, const Region& region, Runs& runs) const;
  void write(std::uint32_t number, const Region& region, const Runs& runs);

  std::span<const Problem> problems_;
  std::span<const Schedule> schedules_;
  const Exchange& exchange_;
  Expressions expressions_;
  std::vector<Layout> layouts_;
  std::vector<Memory> memories_;
  WindowProof windows_;
  Runs incoming_;  // buffers that each event reuses
  Runs local_;
  Runs result_;
};

}  // namespace mccl::schedule
