// Plans as programs read them.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/plan/answer.h"

namespace mccl::cli::plan {

/// One row. Times are in microseconds, rates in GB/s; null where there is no such figure.
nlohmann::ordered_json row_json(const Answer& answer,
                                std::span<const schedule::Choice> alternatives);

/// The whole, with a line end.
std::string to_json(const schedule::Facts& facts, int ranks, nlohmann::ordered_json rows);

}  // namespace mccl::cli::plan
