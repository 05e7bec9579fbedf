#include "cli/plan/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "schedule/describe.h"

namespace mccl::cli::plan {
namespace {

/// Of a longer list only the last matter to a reader.
constexpr std::size_t kMostNamed = 4;

/// The steps that each of the first `lines` waits for.
std::vector<std::vector<std::size_t>> predecessors(const schedule::Schedule& schedule,
                                                   std::size_t lines) {
  std::vector<std::vector<std::size_t>> of(lines);
  for (std::size_t i = 0; i < lines; ++i) {
    for (auto e = schedule.successor_begin[i]; e < schedule.successor_begin[i + 1]; ++e)
      if (schedule.successors[e] < lines) of[schedule.successors[e]].push_back(i);
  }
  return of;
}

std::string after(const std::vector<std::size_t>& steps) {
  if (steps.empty()) return {};
  const std::size_t hidden = steps.size() > kMostNamed ? steps.size() - kMostNamed : 0;
  std::string text = "  after ";
  if (hidden > 0) text += fmt::format("{} more, ", hidden);
  const std::vector<std::size_t> named(steps.begin() + static_cast<std::ptrdiff_t>(hidden),
                                       steps.end());
  return text + fmt::format("{}", fmt::join(named, ", "));
}

}  // namespace

std::string steps_text(const schedule::Schedule& schedule) {
  const std::size_t steps = schedule.steps.size();
  const std::size_t lines = std::min(steps, kMostStepLines);
  const auto waits = predecessors(schedule, lines);
  std::vector<std::string> words;
  std::size_t width = 0;
  for (std::size_t i = 0; i < lines; ++i) {
    const schedule::Step& step = schedule.steps[i];
    words.push_back(schedule::describe(step) + (step.completes ? ", complete" : ""));
    width = std::max(width, words.back().size());
  }
  std::string text;
  for (std::size_t i = 0; i < lines; ++i) {
    std::string line = fmt::format("{:>6}  {:<{}}{}", i, words[i], width, after(waits[i]));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  if (steps > lines) text += fmt::format("        … and {} more\n", steps - lines);
  if (steps == 0) text += "        nothing to do\n";
  return text;
}

}  // namespace mccl::cli::plan
