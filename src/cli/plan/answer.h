// What the library would do for a call.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/question.h"
#include "schedule/choose.h"

namespace mccl::cli::plan {

/// Of the schedules that were built, the most of any rank; bytes.
struct Traffic {
  std::size_t steps = 0;
  std::size_t sent = 0;       ///< Through links.
  std::size_t received = 0;   ///< The same.
  std::size_t published = 0;  ///< Into the rank's window.
  std::size_t read = 0;       ///< Out of its neighbours' windows.
  int ranks = 0;              ///< Whose schedules were built.
};

struct Answer {
  Question question;
  schedule::Choice choice;
  double estimated_steps = 0;
  /// Empty where building a schedule would take long.
  std::optional<Traffic> traffic;

  double chunk_bytes() const;
  double algbw_gbs() const;  ///< 0 for a barrier.
  double busbw_gbs() const;
};

/// Whether its sum is rounded: with auto only where that is faster.
bool compresses(const Question& question, const schedule::Facts& facts);

Answer answer(const Question& question, const schedule::Facts& facts);

/// The choice alone, in microseconds.
schedule::Choice choose(const Question& question, const schedule::Facts& facts);

/// Every algorithm that can do it, each at its best chunk, cheapest first.
std::vector<schedule::Choice> alternatives(const Question& question, const schedule::Facts& facts);

/// The problem that `rank`'s schedule is built from.
schedule::Problem chosen_problem(const Question& question, int rank, const schedule::Choice& choice,
                                 const schedule::Facts& facts);

}  // namespace mccl::cli::plan
