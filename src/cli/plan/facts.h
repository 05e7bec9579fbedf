// Parses, measures and prints facts, which are the parameters of the cost model, and compares the
// predictions of the model with the measurements of `mccl bench`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cabling.h"
#include "cli/plan/answer.h"
#include "schedule/cable_map.h"
#include "schedule/choose.h"

namespace mccl::cli::plan {

/// The node of each rank, if `per_node` ranks share one. Empty if no two ranks share a node.
std::vector<int> nodes_of(int ranks, int per_node);
int node_count(const schedule::Facts& facts, int ranks);
/// The largest number of ranks on a node.
int fullest_node(const schedule::Facts& facts);

/// Sets the fact of "name=value". The value is a number in seconds, bytes or bytes per second, or a
/// quantity with its unit. Throws InvalidArgument if the name or the value is invalid.
void set_fact(schedule::Facts& facts, std::string_view assignment);
/// The fact must exist. Error messages begin with `flag`.
void set_fact(schedule::Facts& facts, std::string_view flag, std::string_view name,
              std::string_view text);

/// Lines that begin with # and show all facts, and `origin`: where the facts come from.
std::string facts_text(const schedule::Facts& facts, std::string_view origin);

nlohmann::ordered_json facts_json(const schedule::Facts& facts);
/// Parses the "costs" of a file of `mccl bench`. Throws InvalidArgument if a value is missing or
/// wrong.
schedule::Facts facts_of_json(const nlohmann::json& costs, int ranks);

/// Returns the facts that a job of `ranks` ranks (at least 2) on this machine measures. Must be
/// called while the process has one thread. Empty if the job failed and has printed the reason.
std::optional<schedule::Facts> measure(int ranks);

/// Parses a JSON list with an object for each cable: {"between": [0, 1], "rate": "10Gbit",
/// "latency": "20us"}. Rate and latency may be missing. Throws InvalidArgument if the text is
/// invalid or the cables do not join all ranks; the message contains `origin`.
Cabling parse_links(std::string_view text, std::string_view origin, int ranks);

/// Lines that begin with # and show the ring and the tree that schedules use. `map` is null if the
/// cables are one network.
std::string links_text(const Cabling& cabling, const schedule::CableMap* map);

struct MeasuredRow {
  Question question;
  double time_us = 0;  ///< Measured mean time of a call on the slowest rank.
  double p50_us = 0;
};

struct MeasuredRun {
  int ranks = 1;
  std::string transport;
  schedule::Facts facts;
  std::vector<MeasuredRow> rows;
};

/// Parses a JSON file of `mccl bench`. Omits sendrecv, which has no schedule. Throws
/// InvalidArgument if the text is invalid; the message contains `origin`, the file's path.
MeasuredRun parse_run(const std::string& text, const std::string& origin);

struct Comparison {
  MeasuredRow row;
  schedule::Choice choice;

  /// Difference of the prediction from the measured time, in per cent of it.
  double deviation() const;
};

std::vector<Comparison> compare(const MeasuredRun& run);

/// A table, and a line that says how many rows are within `tolerance` per cent.
std::string comparison_text(const MeasuredRun& run, const std::vector<Comparison>& comparisons,
                            double tolerance);
std::string comparison_json(const MeasuredRun& run, const std::vector<Comparison>& comparisons);

std::size_t count_outside(const std::vector<Comparison>& comparisons, double tolerance);

}  // namespace mccl::cli::plan
