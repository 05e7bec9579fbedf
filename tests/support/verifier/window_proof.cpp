#include "support/verifier/window_proof.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/layout.h"
#include "support/verifier/defect.h"

namespace mccl::schedule {

WindowProof::WindowProof(std::span<const Problem> problems, std::span<const Schedule> schedules)
    : problems_(problems),
      schedules_(schedules),
      clocks_(problems.size(), Clock(problems.size(), 0)),
      arrivals_(problems.size()),
      at_(problems.size(), 0) {
  for (const Schedule& schedule : schedules) windows_.emplace_back(schedule.window_count);
}

void WindowProof::fail_at(int rank, const std::string& what) const {
  fail(problems_[rank], schedules_[rank], at_[rank], what);
}

void WindowProof::begin_step(int rank, std::size_t step) {
  at_[rank] = step;
  ++clocks_[rank][rank];
}

void WindowProof::publish(int rank, std::size_t offset, const Runs& runs) {
  std::size_t count = 0;
  std::vector<RunMap<Published>::Run> published;
  for (const Memory::Run& run : runs) {
    published.push_back({run.count, {run.value, clocks_[rank][rank], {}}});
    count += run.count;
  }
  windows_[rank].update(offset, count, [&](const Published& before) {
    for (const Reading& reading : before.readings) {
      if (clocks_[rank][reading.reader] >= reading.time) continue;
      fail_at(rank, fmt::format("replaces what rank {} may not have read yet", reading.reader));
    }
  });
  windows_[rank].write(offset, published);
}

void WindowProof::await(int rank, const Step& step) {
  for (const int peer : node_members(problems_[rank], rank)) {
    if (peer == rank || (step.peer != kAllPeers && step.peer != peer)) continue;
    const Clock& theirs = arrivals_[peer][step.mark - 1];
    Clock& mine = clocks_[rank];
    for (std::size_t r = 0; r < mine.size(); ++r) mine[r] = std::max(mine[r], theirs[r]);
  }
}

void WindowProof::read(int rank, int owner, std::size_t offset, std::size_t count, Runs& runs) {
  runs.clear();
  std::vector<RunMap<Published>::Run> found;
  windows_[owner].read(offset, count, found);
  for (const auto& run : found) {
    if (run.value.value.expression == Expressions::kNothing ||
        clocks_[rank][owner] < run.value.time) {
      fail_at(rank, fmt::format("reads what rank {} may not have published yet", owner));
    }
    runs.push_back({run.count, run.value.value});
  }
  windows_[owner].update(offset, count, [&](Published& published) {
    published.readings.push_back({rank, clocks_[rank][rank]});
  });
}

}  // namespace mccl::schedule
