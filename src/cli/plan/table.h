// Plans as people read them: lines that begin with # explain, the others are rows.
#pragma once

#include <span>
#include <string>

#include "cli/plan/answer.h"

namespace mccl::cli::plan {

std::string heading(bench::Routine routine);
/// One line.
std::string row_text(const Answer& answer);
/// A line for each alternative, below the row; the chosen algorithm is marked.
std::string alternatives_text(const Answer& answer, std::span<const schedule::Choice> others);

std::string bytes_text(double bytes);

}  // namespace mccl::cli::plan
