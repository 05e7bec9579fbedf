// Writes plans as JSON for other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/plan/answer.h"

namespace mccl::cli::plan {

/// Returns one row. Times are in microseconds, rates in GB/s. A figure that does not exist is null.
nlohmann::ordered_json row_json(const Answer& answer,
                                std::span<const schedule::Choice> alternatives);

/// Returns the whole plan, with a line end.
std::string to_json(const schedule::Facts& facts, int ranks, nlohmann::ordered_json rows);

}  // namespace mccl::cli::plan
