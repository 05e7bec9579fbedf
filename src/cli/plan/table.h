// Prints plans for users. Lines that begin with # are explanations; the others are rows.
#pragma once

#include <span>
#include <string>

#include "cli/plan/answer.h"

namespace mccl::cli::plan {

std::string heading(bench::Routine routine);
/// Returns one line.
std::string row_text(const Answer& answer);
/// Returns a line for each alternative, for display below the row. The chosen algorithm is marked.
std::string alternatives_text(const Answer& answer, std::span<const schedule::Choice> others);

std::string bytes_text(double bytes);

}  // namespace mccl::cli::plan
