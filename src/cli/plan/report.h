// Prints plans for users, and writes them as JSON for other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/plan/answer.h"

namespace mccl::cli::plan {

/// Lines for users. Those that begin with # are explanations; the others are rows.
std::string heading(bench::Routine routine);
/// Returns one line.
std::string row_text(const Answer& answer);
/// Returns a line for each alternative, for display below the row. The chosen algorithm is marked.
std::string alternatives_text(const Answer& answer, std::span<const schedule::Choice> others);

std::string bytes_text(double bytes);

/// Returns one row. Times are in microseconds, rates in GB/s. A figure that does not exist is null.
nlohmann::ordered_json row_json(const Answer& answer,
                                std::span<const schedule::Choice> alternatives);

/// Returns the whole plan, with a line end.
std::string to_json(const schedule::Facts& facts, int ranks, nlohmann::ordered_json rows);

}  // namespace mccl::cli::plan
