#include "support/verifier/window_proof.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/layout.h"
#include "support/verifier/defect.h"

namespace mccl::schedule {

WindowProof::WindowProof(std::span<const Problem> problems, std::span<const Schedule> schedules,
                         const std::vector<Layout>& layouts, Reading reading)
    : problems_(problems),
      schedules_(schedules),
      clocks_(problems.size(), Clock(problems.size(), 0)),
      arrivals_(problems.size()),
      layouts_(layouts),
      reading_(reading),
      memories_(problems.size(), Store(Layout::kEnd)),
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

bool WindowProof::is_in_place(int owner, Space space) const {
  return reading_ == Reading::in_place && schedules_[owner].readable.holds(space);
}

/// Returns where peers read what `owner` publishes at `window`, from `region` of its memory.
std::pair<WindowProof::Store*, std::size_t> WindowProof::place_of(int owner, std::size_t window,
                                                                  const Region& region) {
  if (!is_in_place(owner, region.space)) return {&windows_[owner], window};
  return {&memories_[owner], layouts_[owner].address(region)};
}

/// Fails unless `rank` knows that all readers have read what it has published.
void WindowProof::require_read(int rank, const Published& published, const char* what) const {
  for (const Reader& reader : published.readers) {
    if (clocks_[rank][reader.rank] >= reader.time) continue;
    fail_at(rank, fmt::format("{} what rank {} may not have read yet", what, reader.rank));
  }
}

void WindowProof::publish(int rank, const Step& step, const Runs& runs) {
  std::vector<Store::Run> published;
  for (const Memory::Run& run : runs)
    published.push_back({run.count, {run.value, clocks_[rank][rank], {}}});
  const auto [store, offset] = place_of(rank, step.window, step.src);
  store->update(offset, step.src.count,
                [&](const Published& before) { require_read(rank, before, "replaces"); });
  store->write(offset, published);
}

/// Memory that is read in place may be written only by steps whose order relative to the window's
/// steps is known: the window's own, or all steps of a schedule that runs in order.
void WindowProof::write(int rank, const Region& region) {
  if (reading_ == Reading::in_window) return;
  const Schedule& schedule = schedules_[rank];
  const bool is_ordered = schedule.in_order || is_window(schedule.steps[at_[rank]].kind);
  const std::size_t address = layouts_[rank].address(region);
  memories_[rank].update(address, region.count, [&](Published& before) {
    if (before.time == 0) return;
    if (!is_ordered) fail_at(rank, "writes what it has published, at any time");
    require_read(rank, before, "overwrites");
    before = {};
  });
}

void WindowProof::end() {
  for (std::size_t rank = 0; rank < memories_.size(); ++rank) {
    memories_[rank].update(0, Layout::kEnd, [&](const Published& published) {
      require_read(static_cast<int>(rank), published, "leaves");
    });
  }
}

void WindowProof::await(int rank, const Step& step) {
  for (const int peer : node_members(problems_[rank], rank)) {
    if (peer == rank || (step.peer != kAllPeers && step.peer != peer)) continue;
    const Clock& theirs = arrivals_[peer][step.mark - 1];
    Clock& mine = clocks_[rank];
    for (std::size_t r = 0; r < mine.size(); ++r) mine[r] = std::max(mine[r], theirs[r]);
  }
}

void WindowProof::await_readers(int rank, const Step& step) {
  if (is_in_place(rank, Space::input) || is_in_place(rank, Space::output)) await(rank, step);
}

void WindowProof::read(int rank, int owner, const Step& step, const Region& region, Runs& runs) {
  runs.clear();
  std::vector<Store::Run> found;
  const auto [store, offset] = place_of(owner, step.window, region);
  store->read(offset, step.dst.count, found);
  for (const auto& run : found) {
    if (run.value.value.expression == Expressions::kNothing ||
        clocks_[rank][owner] < run.value.time) {
      fail_at(rank, fmt::format("reads what rank {} may not have published yet", owner));
    }
    runs.push_back({run.count, run.value.value});
  }
  store->update(offset, step.dst.count, [&](Published& published) {
    published.readers.push_back({rank, clocks_[rank][rank]});
  });
}

}  // namespace mccl::schedule
