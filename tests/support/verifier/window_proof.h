// The windows of a symbolic run. Proves that a read finds neither unpublished nor replaced data.
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

/// Each rank has a vector clock: for every rank, how many of that rank's window steps are known to
/// have ended. Arrivals carry the clock, and waits merge it. The clock of a reader must include the
/// publication that it reads. The clock of a publisher must include every read of the data that it
/// replaces.
class WindowProof {
 public:
  WindowProof(std::span<const Problem> problems, std::span<const Schedule> schedules);

  // Called for the steps in an order that the Exchange allows. Throw a Defect at a wrong step.
  void begin_step(int rank, std::size_t step);
  void publish(int rank, std::size_t offset, const Runs& runs);
  void arrive(int rank) { arrivals_[rank].push_back(clocks_[rank]); }
  void await(int rank, const Step& step);
  /// Replaces `runs` with the elements read.
  void read(int rank, int owner, std::size_t offset, std::size_t count, Runs& runs);

 private:
  using Clock = std::vector<std::uint32_t>;  // one count per rank

  struct Reading {
    int reader;
    std::uint32_t time;  // in steps of the reader
  };
  /// The content of a run of a window.
  struct Published {
    Value value;
    std::uint32_t time = 0;  // in steps of the owner
    std::vector<Reading> readings;
    Published advanced(std::size_t n) const { return {value.advanced(n), time, readings}; }
  };

  [[noreturn]] void fail_at(int rank, const std::string& what) const;

  std::span<const Problem> problems_;
  std::span<const Schedule> schedules_;
  std::vector<Clock> clocks_;                 // one per rank
  std::vector<std::vector<Clock>> arrivals_;  // one list per rank, in order
  std::vector<RunMap<Published>> windows_;
  std::vector<std::size_t> at_;  // the current step of each rank
};

}  // namespace mccl::schedule
