// The windows of a symbolic run, and the proof that nobody reads there what is not yet, or no
// longer, what was meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "support/verifier/run_map.h"
#include "support/verifier/value.h"

namespace mccl::schedule {

/// Every rank has a clock: how many window steps of every rank are known to be over. Arrivals carry
/// it, waits take it over. A read must know of the publication; a publication must know of every
/// read of what it replaces.
class WindowProof {
 public:
  WindowProof(std::span<const Problem> problems, std::span<const Schedule> schedules);

  // In an order that the exchange allows. They throw a Defect.
  void begin_step(int rank, std::size_t step);
  void publish(int rank, std::size_t offset, const Runs& runs);
  void arrive(int rank) { arrivals_[rank].push_back(clocks_[rank]); }
  void await(int rank, const Step& step);
  /// Replaces `runs`.
  void read(int rank, int owner, std::size_t offset, std::size_t count, Runs& runs);

 private:
  using Clock = std::vector<std::uint32_t>;  // by rank

  struct Reading {
    int reader;
    std::uint32_t time;  // of the reader
  };
  /// What a run of a window holds.
  struct Published {
    Value value;
    std::uint32_t time = 0;  // of the owner
    std::vector<Reading> readings;
    Published advanced(std::size_t n) const { return {value.advanced(n), time, readings}; }
  };

  [[noreturn]] void fail_at(int rank, const std::string& what) const;

  std::span<const Problem> problems_;
  std::span<const Schedule> schedules_;
  std::vector<Clock> clocks_;                 // by rank
  std::vector<std::vector<Clock>> arrivals_;  // by rank, in order
  std::vector<RunMap<Published>> windows_;
  std::vector<std::size_t> at_;  // by rank: the step that runs
};

}  // namespace mccl::schedule
