// Tracks a call whose input arrives, and whose output is fetched, while the call runs. Decides
// which steps may already run, and which pieces of the output are final.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/calls/operation.h"
#include "schedule/schedule.h"

namespace mccl::engine {

/// Tracks the arrived input and the final output of one call at a time. Used under the engine's
/// progress lock.
class RunningMemory {
 public:
  /// Starts to track `task` if it has a Conveyor (calls/request.h). Otherwise the whole input is
  /// available, and nothing is tracked.
  void begin(const Task& task, const schedule::Schedule& schedule);
  void end() { conveyor_ = nullptr; }

  /// True if all input that the step reads or overwrites has arrived.
  bool allows(const schedule::Step& step) const {
    return !conveyor_ || reach(step) <= conveyor_->arrived();
  }
  /// True if part of the input has not arrived yet.
  bool waits() const { return conveyor_ && conveyor_->arrived() < input_bytes_; }
  /// Called when the step has ended. Delivers output that is now final.
  void ended(const schedule::Step& step) {
    if (conveyor_) note(step);
  }

 private:
  bool is_input(const schedule::Region& region) const;
  bool is_output(const schedule::Region& region) const;
  std::size_t end_of(const schedule::Region& region) const;
  std::size_t reach(const schedule::Step& step) const;
  void note(const schedule::Step& step);
  void deliver();
  template <typename Visit>
  void for_each_piece(const schedule::Region& region, const Visit& visit);

  Conveyor* conveyor_ = nullptr;
  bool in_place_ = false;
  std::size_t element_bytes_ = 1;
  std::size_t input_bytes_ = 0;
  std::size_t output_bytes_ = 0;
  std::size_t piece_ = 1;
  // For each piece of the output: number of steps that have yet to write it.
  std::vector<std::uint32_t> writers_;
  std::size_t done_ = 0;  // number of final pieces at the start of the output
};

}  // namespace mccl::engine
