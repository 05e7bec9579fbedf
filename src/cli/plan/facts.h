// What predictions are made from: how it is given, shown and kept in files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "mccl/context.h"
#include "schedule/choose.h"

namespace mccl::cli::plan {

/// The node of each rank: `per_node` of them share one, the last may have fewer. Empty where no
/// two share one.
std::vector<int> nodes_of(int ranks, int per_node);
int node_count(const schedule::Facts& facts, int ranks);
/// Ranks of the fullest node.
int fullest_node(const schedule::Facts& facts);

/// "name=value": a number in seconds, bytes or bytes per second, or a quantity with its unit.
/// Throws InvalidArgument.
void set_fact(schedule::Facts& facts, std::string_view assignment);
/// The same of a fact that there is; messages begin with `flag`.
void set_fact(schedule::Facts& facts, std::string_view flag, std::string_view name,
              std::string_view text);

/// Comment lines that show all facts.
std::string facts_text(const schedule::Facts& facts, std::string_view origin);

nlohmann::ordered_json facts_json(const schedule::Facts& facts);
/// The "costs" of a file of `mccl bench` with that many ranks. Throws InvalidArgument that says
/// what is missing or wrong.
schedule::Facts facts_of_json(const nlohmann::json& costs, int ranks);

}  // namespace mccl::cli::plan
