// Parses, measures and prints facts, which are the parameters of the cost model.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cabling.h"
#include "schedule/choose.h"

namespace mccl::cli::plan {

/// Returns the node of each rank. `per_node` ranks share a node; the last node may have fewer.
/// Empty if no two ranks share a node.
std::vector<int> nodes_of(int ranks, int per_node);
int node_count(const schedule::Facts& facts, int ranks);
/// Returns the number of ranks on the node that has the most ranks.
int fullest_node(const schedule::Facts& facts);

/// Parses "name=value" and sets the fact. The value is a number in seconds, bytes or bytes per
/// second, or a quantity with its unit. Throws InvalidArgument if the name or the value is invalid.
void set_fact(schedule::Facts& facts, std::string_view assignment);
/// Sets the fact `name`, which must exist, to the value `text`. Error messages begin with `flag`.
void set_fact(schedule::Facts& facts, std::string_view flag, std::string_view name,
              std::string_view text);

/// Returns lines that begin with # and show all facts, and `origin`: where the facts come from.
std::string facts_text(const schedule::Facts& facts, std::string_view origin);

nlohmann::ordered_json facts_json(const schedule::Facts& facts);
/// Parses the "costs" of a file of `mccl bench` with `ranks` ranks. Throws InvalidArgument if a
/// value is missing or wrong; the message names the value.
schedule::Facts facts_of_json(const nlohmann::json& costs, int ranks);

/// Starts a job of `ranks` ranks (at least 2) on this machine and returns the facts that its ranks
/// measured and agreed on. Must be called while the process has one thread. Empty if the job
/// failed; the job has then printed the reason to stderr. Throws InvalidArgument if MCCL_CALIBRATE
/// disables measurements.
std::optional<schedule::Facts> measure(int ranks);

/// Parses a JSON list with an object for each cable: {"between": [0, 1], "rate": "10Gbit",
/// "latency": "20us"}. Rate and latency may be missing. Throws InvalidArgument if the text is
/// invalid or the cables do not join all ranks. The message contains `origin`. If the cables do not
/// join all ranks, the message also lists the sets of ranks that cables join.
Cabling parse_links(std::string_view text, std::string_view origin, int ranks);

/// Returns lines that begin with # and show the ring and the tree that schedules use.
std::string links_text(const Cabling& cabling, double latency_s, double bytes_per_s);

}  // namespace mccl::cli::plan
