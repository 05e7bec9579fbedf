// The schedules of all ranks of a call, for tests that damage them.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cases.h"
#include "schedule/builder.h"
#include "support/verifier/verify.h"

namespace mccl::schedule {

/// The schedules of a call, which a test then breaks.
struct ScheduledGroup {
  std::vector<Problem> problems;
  std::vector<Schedule> schedules;

  ScheduledGroup(Algorithm algorithm, const Case& c)
      : problems(problems_of(c)), schedules(build_all(algorithm, problems)) {}

  std::string defect() const { return verify(problems, schedules); }

  /// Recomputes the waits for the steps, so that only the steps are wrong.
  void wait_again(int rank) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> waits;
    find_hazards(layout_of(problems[rank]), schedules[rank].steps, waits);
    link_waits(waits, schedules[rank]);
  }

  Step& find(int rank, StepKind kind, int skip = 0) {
    for (Step& step : schedules[rank].steps) {
      if (step.kind == kind && skip-- == 0) return step;
    }
    throw std::runtime_error("no such step");
  }
};

/// A broadcast of four elements through the window of two ranks.
inline const Case kBroadcast{.collective = Collective::broadcast,
                             .size = 2,
                             .count = 4,
                             .chunk = 4,
                             .placement = Placement::one_node,
                             .window = 16};

/// Returns the defect of schedules whose steps `write` makes, for the same call on every rank.
inline std::string fault_of(const Case& c,
                            const std::function<void(const Problem&, ScheduleBuilder&)>& write) {
  const std::vector<Problem> problems = problems_of(c);
  std::vector<Schedule> schedules;
  for (const Problem& p : problems) {
    ScheduleBuilder builder(p);
    write(p, builder);
    schedules.push_back(builder.finish());
  }
  return verify(problems, schedules);
}

}  // namespace mccl::schedule
